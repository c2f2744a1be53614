"""Polygons of labelme, COCO and YOLO: which pixels they draw, which classes they are, what is refused."""

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
from helpers.masks import TURNED
from mlx_unpool_zoo.data import read
from PIL import Image
from pycocotools.coco import COCO

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)  # of pycocotools
SQUARE = [[2, 2], [6, 2], [6, 6], [2, 6]]
FLAT = [x for point in SQUARE for x in point]
WIDE = [0, 0, 16, 0, 16, 12, 0, 12]
YOLO = {"data.yaml": "names: [car, bus]\n"}


def put(folder: Path, files: dict) -> Path:
    """Files in a folder: pictures from an array, JSON from an object, or texts."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, np.ndarray):
            Image.fromarray(content).save(path)
        elif isinstance(content, Image.Image):
            content.save(path, exif=TURNED)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def photo(value: int = 50, shape: tuple = (12, 16)) -> np.ndarray:
    return np.full((*shape, 3), value, np.uint8)


def shape(label: str, points: list, kind: str = "polygon", **more: object) -> dict:
    return {"label": label, "points": points, "shape_type": kind} | more


def labelme(*shapes: dict, size: tuple = (16, 12), **more: object) -> dict:
    return {"imagePath": "x.png", "shapes": shapes, "imageWidth": size[0], "imageHeight": size[1]} | more


def coco(*annotations: dict, names: tuple = ("car", "bus"), size: tuple = (16, 12), **more: object) -> dict:
    """Annotations of the image a.png; categories are numbered from 1."""
    listed = [{"id": n, "image_id": 7, "category_id": 1} | each for n, each in enumerate(annotations)]
    return {
        "images": [{"id": 7, "file_name": "a.png", "width": size[0], "height": size[1]}],
        "annotations": listed,
        "categories": [{"id": n, "name": name} for n, name in enumerate(names, start=1)],
    } | more


def truth_of(folder: Path, split: str = "train") -> tuple[list[str], np.ndarray]:
    record = read([folder], 256)[split]
    return [entry["name"] for entry in record.meaning.classes], record.pairs[0][1]


def rows(text: str) -> np.ndarray:
    return np.array([[int(x) if x.isdigit() else 255 for x in row] for row in text.split()], np.uint8)


PART = io.BytesIO()
Image.fromarray(np.eye(3, dtype=np.uint8)).save(PART, "png")
# Shapes on 8 x 6 pixels as shape_to_mask and shapes_to_label of labelme 6.3.1 draw them.
DRAWN = [
    ("polygon", [[1, 1], [5, 1], [5, 4], [1, 4]], "00000000 01111100 01111100 01111100 01111100 00000000"),
    ("rectangle", [[5, 4], [1, 2]], "00000000 00000000 01111100 01111100 01111100 00000000"),
    ("circle", [[3, 2], [3, 4]], "00111000 01111100 01111100 01111100 00111000 00000000"),
    (
        "oriented_rectangle",
        [[0, 3], [3, 0], [6, 3], [3, 5]],
        "00010000 00111000 01111100 11111110 00111000 00010000",
    ),
    ("mask", [[2, 1], [4, 3]], "00000000 00100000 00010000 00001000 00000000 00000000"),
]


@pytest.mark.parametrize(("kind", "points", "drawn"), DRAWN)
def test_labelme_draws_the_same_pixels(kind, points, drawn, tmp_path):
    more = {"mask": base64.b64encode(PART.getvalue()).decode()} if kind == "mask" else {}
    file = labelme(shape("car", points, kind, **more), size=(8, 6))
    put(tmp_path, {"a.png": photo(shape=(6, 8)), "a.json": file})
    assert np.array_equal(truth_of(tmp_path)[1], rows(drawn))


@pytest.mark.parametrize(
    "segmentation",
    [
        [FLAT],
        [[0, 0, 10, 0, 10, 10, 0, 10]],  # 100 pixels, 121 in labelme
        [[0.4, 1.2, 9.7, 0.1, 14.9, 7.3, 3.3, 11.8], [12, 9, 15.5, 9, 13, 11.5]],
        {"size": [12, 16], "counts": [30, 5, 7, 5, 145]},
        {"size": [12, 16], "counts": "V166000000000c0KB000000000G"},
    ],
)
def test_coco_draws_the_pixels_of_pycocotools(segmentation, tmp_path):
    put(tmp_path, {"images/a.png": photo(), "annotations.json": coco({"segmentation": segmentation})})
    whole = COCO(tmp_path / "annotations.json")
    assert np.array_equal(truth_of(tmp_path)[1], whole.annToMask(whole.anns[0]))


def test_yolo_draws_the_pixels_of_pycocotools(tmp_path):
    parts = "0.125 0.2 0.9 0.25 0.6 0.9 0.2 0.7"
    put(tmp_path, YOLO | {"images/a.png": photo(), "labels/a.txt": f"1 {parts}\n"})
    points = np.array(parts.split(), float).reshape(-1, 2) * (16, 12)
    whole = COCO(put(tmp_path, {"x/a": coco({"segmentation": [points.ravel().tolist()]})}) / "x/a")
    names, truth = truth_of(tmp_path)
    assert names == ["background", "car", "bus"]
    assert np.array_equal(truth, 2 * whole.annToMask(whole.anns[0]))


SMALL, BIG = {"segmentation": [FLAT]}, {"segmentation": [WIDE], "category_id": 2}
ALL = "0 0 1 0 1 .9 0 .9"


@pytest.mark.parametrize(
    ("files", "names", "pixels"),
    [  # pixels: of the corner, and of (3, 3), which is in both shapes
        ({"a.json": labelme(shape("car", SQUARE), shape("bus", [[0, 0], [15, 9]], "rectangle"))}, "bus car", (1, 1)),
        ({"a.json": labelme(shape("bus", [[0, 0], [15, 9]], "rectangle"), shape("car", SQUARE))}, "bus car", (1, 2)),
        ({"a.json": labelme(shape("_background_", SQUARE), shape("__ignore__", [[0, 0], [1, 1]], "rectangle"))}, "", (255, 0)),
        ({"annotations.json": coco(SMALL, BIG)}, "car bus", (2, 1)),
        ({"_annotations.coco.json": coco(BIG, SMALL)}, "car bus", (2, 1)),
        ({"annotations.json": coco(SMALL, BIG | {"iscrowd": 1})}, "car bus", (255, 1)),
        ({"result.json": coco(SMALL, names=("car", "Background"))}, "car", (0, 1)),
        ({"labels/a.txt": f"1 {ALL}\n0 .1 .1 .5 .1 .5 .5 .1 .5\n"} | YOLO, "car bus", (2, 1)),
        ({"a.txt": f"1 {ALL}\n", "classes.txt": "car\nbus\n"}, "car bus", (2, 2)),
    ],
)  # fmt: skip
def test_which_shape_covers_which(files, names, pixels, tmp_path):
    beside = "a.txt" in files or "a.json" in files
    put(tmp_path, files | {"a.png" if beside else "images/a.png": photo()})
    if names == "":
        with pytest.raises(ValueError, match="must have 2 to 254 classes, but have 1"):
            truth_of(tmp_path)
        return
    found, truth = truth_of(tmp_path)
    assert found == ["background", *names.split()]
    assert (truth[0, 0], truth[3, 3]) == pixels


def splits(form: str) -> dict:
    """Two images of each split with the classes in another order, as Roboflow, COCO, YOLO and labelme lay them out."""
    files: dict = {}
    for split, names in {"train": ("car", "bus"), "val": ("bus", "car")}.items():
        file = coco(SMALL | {"category_id": 1 + names.index("car")}, names=names)
        rings = {f"{split}/a.png": photo()}
        files |= {
            "roboflow": {f"{split}/_annotations.coco.json": file} | rings,
            "coco": {f"annotations/instances_{split}2017.json": file, f"images/{split}2017/a.png": photo()},
            "captions": {
                f"annotations/instances_{split}.json": file,
                f"annotations/captions_{split}.json": {"images": [], "annotations": []},
                f"annotations/person_keypoints_{split}.json": file,
            } | rings,
            "yolo": {f"labels/{split}/a.txt": "0 .1 .1 .5 .1 .5 .7 .1 .7", f"images/{split}/a.png": photo()} | YOLO,
            "ultralytics": {f"{split}/labels/a.txt": "0 .1 .1 .5 .1 .5 .7 .1 .7", f"{split}/images/a.png": photo()} | YOLO,
            "labelme": {f"{split}/a.json": labelme(shape("car", SQUARE), shape("bus", SQUARE[:2]))} | rings,
        }[form]  # fmt: skip
    return files


@pytest.mark.parametrize("form", ["roboflow", "coco", "captions", "yolo", "ultralytics", "labelme"])
def test_the_training_split_numbers_the_classes(form, tmp_path):
    put(tmp_path, splits(form))
    names, truth = truth_of(tmp_path)
    assert truth[3, 3] == names.index("car") == 1
    assert truth_of(tmp_path, "validation")[1][3, 3] == 1


TWICE = {"images/x/a.png": photo(), "images/y/a.png": photo()}
WRONG = [
    ({"a.json": labelme(shape("car", SQUARE)), "b.png": photo()}, "b.png, for example, needs b.json in"),
    ({"a.json": labelme(shape("car", SQUARE)), "b.json": labelme()}, "b.json has shapes, but there is no image for it in"),
    ({"a.json": labelme(shape("car", SQUARE), size=(12, 16))}, "but that has (16, 12); if its EXIF data turn it, save it"),
    ({"a.json": labelme(shape("car", SQUARE), size=(20, 12))}, "a.json: its shapes are for a picture of (20, 12), but that"),
    ({"a.json": labelme(shape("car", [[1, 2], [3, 4]], "line"))}, "no polygons, only shapes without area: 1 line"),
    ({"a.json": labelme(shape("car", [[1, 1e9], [2, 2], [3, 9]]))}, "a.json: points are far outside the picture: 1 to 1"),
    ({"a.json": '{"imagePath": "a.png", "shapes": ['}, "a.json: Expecting value: line 1 column"),
    ({"a.json": labelme({"label": "car"})}, "a.json: damaged, or not of labelme, COCO or YOLO (KeyError: 'points')"),
    ({"c.json": coco(SMALL, size=(16, 13))}, "c.json: its shapes are for a picture of (16, 13), but that has (16, 12)."),
    ({"c.json": coco({"segmentation": []})}, "no polygons, only shapes without area: 1 box."),
    ({"c.json": coco(SMALL | {"category_id": 9})}, "(KeyError: 9)"),
    ({"c.json": coco({"segmentation": {"size": [12, 16], "counts": [3, 4]}})}, "the run lengths of a shape do not fill the pic"),
    ({"c.json": coco({"segmentation": {"size": [16, 12], "counts": [3, 189]}})}, "must have the size [12, 16], but have [16, 12]"),
    ({"c.json": coco(SMALL, images=[{"id": 7, "file_name": "b.png"}])}, "its images are not in"),
    ({"c.json": coco(SMALL), "d.json": coco(SMALL)}, "c.json and "),
    ({"c.json": coco(SMALL), "a.png": None} | TWICE, "several folders in"),
    ({"labels/a.txt": "2 .1 .1 .5 .1 .5 .5"} | YOLO, "a.txt: the class 2 is not in "),
    ({"labels/a.txt": "0 1 1 5 1 5 5"} | YOLO, "points must be in parts of the size (0 to 1)"),
    ({"labels/a.txt": "0 .1 .1 .5 .5 .9 .9 .4"} | YOLO, "a.txt: a shape has an odd number of coordinates"),
    ({"labels/a.txt": "0 .1 .1 .5 .5"} | YOLO, "only shapes without area: 1 box"),
    ({"labels/a.txt": "0 .1 .1 .5 .1 .5 .5"}, "there is no data.yaml with their names"),
    ({"labels/a.txt": "0 .1 .1 .5 .1 .5 .5", "d.yaml": "kpt_shape: [17, 3]\nnames: [a]"}, "describes keypoints"),
    ({"p.json": [{"id": 1, "annotations": [{"result": []}]}]}, "Label Studio's JSON, which is not read: export it as COCO"),
    ({"masks/task-1-annotation-2-by-3-tag-dog-0.png": photo(), "images/b.png": photo()}, "brush PNGs of Label Studio"),
    ({"annotations.xml": "<?xml?>\n<annotations><image/></annotations>"}, "export it as COCO 1.0 or Segmentation mask"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "said"), WRONG)
def test_what_is_not_understood_is_named(files, said, tmp_path):
    picture = {"a.png" if "a.json" in files else "images/a.png": photo()} if "a.png" not in files else {}
    put(tmp_path, picture | {name: content for name, content in files.items() if content is not None})
    with pytest.raises(ValueError, match=".") as error:
        read([tmp_path], 256)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
