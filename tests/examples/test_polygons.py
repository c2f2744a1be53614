"""Polygons of labelme, COCO and YOLO: which pixels they draw, which classes they are, what is refused."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from helpers.masks import encoded, error_of, put
from mlx_unpool_zoo.data import read
from pycocotools.coco import COCO

# Of pycocotools.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
SQUARE = [[2, 2], [6, 2], [6, 6], [2, 6]]
FLAT = [x for point in SQUARE for x in point]
WIDE = [0, 0, 16, 0, 16, 12, 0, 12]
YOLO = {"data.yaml": "names: [car, bus]\n"}


def photo(*size: int) -> np.ndarray:
    return np.full((*(size or (12, 16)), 3), 50, np.uint8)


def shape(label: str, points: list, kind: str = "polygon", **more: object) -> dict:
    return {"label": label, "points": points, "shape_type": kind} | more


def labelme(*shapes: dict, size: tuple = (16, 12)) -> dict:
    return {"imagePath": "x.png", "shapes": shapes, "imageWidth": size[0], "imageHeight": size[1]}


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
    return [entry["name"] for entry in record.classes], record.pairs[0][1]


PART = encoded(np.eye(3, dtype=np.uint8), "png")
# Shapes on 8 x 6 pixels as shape_to_mask and shapes_to_label of labelme 6.3.1 draw them.
DRAWN = [
    ("polygon", [[1, 1], [5, 1], [5, 4], [1, 4]], "00000000 01111100 01111100 01111100 01111100 00000000"),
    ("rectangle", [[5, 4], [1, 2]], "00000000 00000000 01111100 01111100 01111100 00000000"),
    ("circle", [[3, 2], [3, 4]], "00111000 01111100 01111100 01111100 00111000 00000000"),
    ("rotation", [[0, 3], [3, 0], [6, 3], [3, 5]], "00010000 00111000 01111100 11111110 00111000 00010000"),
    ("mask", [[2, 1], [4, 3]], "00000000 00100000 00010000 00001000 00000000 00000000"),
]


@pytest.mark.parametrize(("kind", "points", "drawn"), DRAWN)
def test_labelme_draws_the_same_pixels(kind, points, drawn, tmp_path):
    more = {"mask": base64.b64encode(PART).decode()} if kind == "mask" else {}
    file = labelme(shape("car", points, kind, **more), size=(8, 6))
    put(tmp_path, {"a.png": photo(6, 8), "a.json": file})
    assert ["".join(map(str, row)) for row in truth_of(tmp_path)[1].tolist()] == drawn.split()


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
CAR, BUS = shape("car", SQUARE), shape("bus", [[0, 0], [15, 9]], "rectangle")
BOTH = "1 0 0 1 0 1 .9 0 .9\n0 .1 .1 .5 .1 .5 .5 .1 .5\n\n"


@pytest.mark.parametrize(
    ("files", "names", "pixels"),
    [  # pixels: the corner, and (3, 3), which is in both shapes
        ({"a.json": labelme(CAR, BUS)}, "bus car", (1, 1)),
        ({"images/a.json": labelme(BUS, CAR)}, "bus car", (1, 2)),
        ({"labels/a.json": labelme(BUS, CAR | {"label": "__ignore__"})}, "bus", (1, 255)),
        ({"a.json": labelme(BUS, CAR | {"label": "_background_"}), "notes.json": {}}, "bus", (1, 0)),
        ({"annotations.json": coco(SMALL, BIG)}, "car bus", (2, 1)),
        ({"_annotations.coco.json": coco(BIG, SMALL)}, "car bus", (2, 1)),
        ({"annotations/instances_default.json": coco(SMALL, BIG | {"iscrowd": 1})}, "car bus", (255, 1)),
        ({"result.json": coco(SMALL, BIG, names=("Background", "bus"))}, "bus", (1, 0)),
        ({"labels/a.txt": BOTH} | YOLO, "car bus", (2, 1)),
        ({"labels/b.txt": BOTH, "images/b.png": photo()} | YOLO, "car bus", (0, 0)),
        ({"a.txt": BOTH, "classes.txt": "car\nbus\n"}, "car bus", (2, 1)),
    ],
)
def test_which_shape_covers_which(files, names, pixels, tmp_path):
    beside = any(name in files for name in ("a.json", "a.txt"))
    put(tmp_path, files | {"a.png" if beside else "images/a.png": photo()})
    found, truth = truth_of(tmp_path)
    assert found == ["background", *names.split()]
    assert (truth[0, 0], truth[3, 3]) == pixels


def splits(form: str) -> dict:
    """An image of each split; the files list the classes in another order for validation."""
    files: dict = {}
    for split, names in {"train": ("car", "bus"), "val": ("bus", "car")}.items():
        file, text = coco(SMALL | {"category_id": 1 + names.index("car")}, names=names), BOTH.split("\n")[1]
        beside = {f"{split}/a.png": photo()}
        files |= {
            "roboflow": {f"{split}/_annotations.coco.json": file} | beside,
            "coco": {
                f"annotations/instances_{split}2017.json": file,
                f"annotations/captions_{split}2017.json": {"images": [], "annotations": []},
                f"annotations/person_keypoints_{split}2017.json": file,
                f"{split}2017/a.png": photo(),
            },
            "one": {
                "annotations.json": coco(
                    SMALL,
                    SMALL | {"image_id": 8},
                    images=[{"id": 7, "file_name": "train/a.png"}, {"id": 8, "file_name": "val/b.png"}],
                ),
                f"images/{split}/{'a' if split == 'train' else 'b'}.png": photo(),
            },
            "two": {f"{split}.json": file, f"images/{split}/a.png": photo()},
            "flat": {f"labels/{split}.txt": text, f"images/{split}/{split}.png": photo()} | YOLO,
            "yolo": {f"labels/{split}/a.txt": text, f"images/{split}/a.png": photo()} | YOLO,
            "ultralytics": {f"{split}/labels/a.txt": text, f"{split}/images/a.png": photo()} | YOLO,
            "labelme": {f"{split}/a.json": labelme(CAR, BUS, CAR)} | beside,
        }[form]
    return files


@pytest.mark.parametrize("form", ["roboflow", "coco", "one", "two", "flat", "yolo", "ultralytics", "labelme"])
def test_the_training_split_numbers_the_classes(form, tmp_path):
    put(tmp_path, splits(form))
    names, truth = truth_of(tmp_path)
    assert truth[3, 3] == names.index("car")
    assert len(read([tmp_path], 256)["train"].pairs) == 1
    assert truth_of(tmp_path, "validation")[1][3, 3] == names.index("car")


def test_what_has_no_effect_is_counted(tmp_path):
    """Boxes, lines, shapes and images that are not listed or missing, images without shapes, and a group."""
    listed = [("a", 7), ("b", 8), ("gone", 9)]
    file = coco(
        SMALL,
        *({"segmentation": part} for part in ([], None, [[1, 2, 3, 4]])),
        SMALL | {"image_id": 1},
        names=("car",),
        images=[{"id": n, "file_name": f"x\\{name}.png"} for name, n in listed],
    )
    file["categories"].append({"id": 0, "name": "things", "supercategory": "none"})
    file["categories"][0]["supercategory"] = "things"
    images = {f"images/{name}.png": photo() for name in "abc"}
    record = read([put(tmp_path, images | {"annotations.json": file})], 256)["train"]
    assert [entry["name"] for entry in record.classes] == ["background", "car"]
    name = tmp_path / "annotations.json"
    assert record.notes == [
        f"Images that {name} lists, but are missing: 1.",
        f"Shapes in {name} of images that it does not list, which are not used: 1.",
        f"Images that {name} does not list, which are not used: 1.",
        "Shapes without an area are not drawn: 2 box, 1 line.",
        "1 of 2 images, such as b.png, have only background.",
    ]


def test_masks_count_where_there_are_polygons_too(tmp_path):
    blocks = np.kron(np.eye(2, dtype=np.uint8), np.ones((6, 8), np.uint8))
    put(tmp_path / "a", {"images/a.png": photo(), "masks/a.png": blocks, "annotations.json": coco(SMALL)})
    put(tmp_path / "b", {"a.jpg": photo(), "a.png": blocks, "a.json": labelme(CAR)})
    for name in "ab":
        assert np.array_equal(truth_of(tmp_path / name)[1], blocks)


def test_files_are_parsed_once(tmp_path, monkeypatch):
    """Files of labelme contain their image, which has megabytes."""
    sizes, loads = [], json.loads
    monkeypatch.setattr(json, "loads", lambda text: sizes.append(len(text)) or loads(text))
    for form in ("labelme", "coco"):
        read([put(tmp_path / form, splits(form))], 256)
    assert len(sizes) == len([*tmp_path.rglob("*.json")]) - 4  # not captions and keypoints


LINE, FAR = shape("car", [[1, 2], [3, 4]], "line"), shape("car", [[1, 1e9], [2, 2], [3, 9]])
RUNS, DAMAGED = {"size": [12, 16], "counts": [3, 4]}, "damaged, or not of labelme, COCO or YOLO (KeyError"
IMAGE, BRUSH = {"images/a.png": photo()}, "masks/task-1-annotation-2-by-3-tag-b-0.png"
OF_LABELME = [
    (labelme(CAR, size=(20, 12)), "a.json: its shapes are for a picture of (20, 12), but that has (16, 12)."),
    (labelme(CAR, size=(12, 16)), "but that has (16, 12); if its EXIF data turn it, save it without them."),
    (labelme(LINE), "a.json has no polygons, only shapes without area: 1 line."),
    (labelme(FAR), "a.json: points are far outside the picture: 1 to 1e+09."),
    ('{"imagePath": "a.png", "shapes": [', "a.json: Expecting value: line 1 column"),
    (labelme({"label": "car"}), f"a.json: {DAMAGED}"),
]
OF_COCO = [
    (coco(SMALL, size=(16, 13)), "c.json: its shapes are for a picture of (16, 13), but that has (16, 12)."),
    (coco({"segmentation": []}), "has no polygons, only shapes without area: 1 box."),
    (coco(SMALL | {"category_id": 9}), f"c.json: {DAMAGED}"),
    (coco({"segmentation": RUNS}), "the run lengths of a shape do not fill the picture."),
    (coco({"segmentation": RUNS | {"size": [16, 12]}}), "run lengths must be for [12, 16] pixels, not [16"),
    (coco(images=[{"id": 7, "file_name": "b.png"}]), "c.json: its images are not in "),
]
OF_YOLO = [
    ("2 .1 .1 .5 .1 .5 .5", "a.txt: the class 2 is not in "),
    ("0 16 16 53 16 50 50", "a.txt: points must be in parts of the size (0 to 1), not in pixels."),
    ("0 .1 .1 .5 .5 .9 .9 .4", "a.txt: a shape has an odd number of coordinates."),
    ("0 .1 .1 .5 .5", "a.txt has no polygons, only shapes without area: 1 box."),
]
WRONG = [
    *(({"a.png": photo(), "a.json": file}, said) for file, said in OF_LABELME),
    *((IMAGE | {"c.json": file}, said) for file, said in OF_COCO),
    *((IMAGE | YOLO | {"labels/a.txt": text}, said) for text, said in OF_YOLO),
    ({"a.png": photo(), "b.png": photo(), "a.json": labelme(CAR)}, "b.png, for example, needs b.json in "),
    ({"a.png": photo(), "a.json": labelme(CAR), "b.json": labelme()}, "b.json has shapes, but there is no"),
    ({f"images/{n}/a.png": photo() for n in "xy"} | {"c.json": coco(SMALL)}, "several folders in "),
    (IMAGE | {"c.json": coco(SMALL), "d.json": coco(SMALL)}, "d.json are both files of COCO: keep one."),
    (IMAGE | YOLO | {f"labels/{n}.txt": BOTH for n in "ab"}, "b.txt has shapes, but there is no image for"),
    (IMAGE | {"labels/a.txt": BOTH}, "has polygons of YOLO, but there is no data.yaml with their names."),
    (IMAGE | {"labels/a.txt": BOTH, "data.yaml": "kpt_shape: [17, 3]\nnames: [a]"}, "describes keypoints"),
    (IMAGE | {"p.json": [{"annotations": []}]}, "a list in JSON as of Label Studio, which is not read: exp"),
    (IMAGE | {"images/c.png": photo(), BRUSH: photo()}, "brush PNGs of Label Studio, one per label, which"),
    (
        splits("labelme") | {"val/a.json": labelme(shape("dog", SQUARE))},
        "training split has no class dog, but",
    ),
    (IMAGE | {"a.xml": "<?xml?>\n<annotations>"}, "export it as COCO 1.0 or Segmentation mask 1.1."),
]


@pytest.mark.parametrize(("files", "said"), WRONG)
def test_what_is_not_understood_is_named(files, said, tmp_path):
    assert said in error_of(read, [put(tmp_path, files)], 256)
