"""Masks and photographs as other tools write them."""

import json
import re
from pathlib import Path

import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from helpers.masks import BLOCKS, COLOURS, TURNED, encoded, error_of, in_palette, pairs, put, write
from helpers.programs import call
from mlx_unpool_zoo.data import read
from mlx_unpool_zoo.data.layouts import files_of
from mlx_unpool_zoo.data.pictures import open_picture
from PIL import Image

BY_COLOUR = "255 80 0 fire\n0 160 255 sea\n0 0 0 rock\n"


# Names of masks.


@pytest.mark.parametrize(
    ("images", "masks", "ending", "said"),
    [
        ("a.jpg b.PNG", "a.png b.TIF", None, ""),
        ("a.jpg b.jpg", "a_L.png b_L.png", None, ""),
        ("1.jpg 10.jpg", "1_mask.gif 10_mask.gif", None, ""),
        ("a_leftImg8bit.png b_leftImg8bit.png", "a_gtFine_labelIds.png b_gtFine_labelIds.png", None, ""),
        ("21_training.tif 22_training.tif", "21_manual1.gif 22_manual1.gif", None, ""),
        ("img_1.jpg img_2.jpg", "mask_1.png mask_2.png", None, ""),
        ("x/a_i.png y/b_i.png", "x/a_m.png y/b_m.png", None, ""),  # the folders of cities
        ("a.jpg b.jpg", "a_y.png b_y.png a_x.png b_x.png", "_y", ""),
        ("a.jpg b.jpg", "a.png b.png a_x.png b_x.png", None, ""),  # equal names first
        ("a.jpg b.jpg", "a_x.png b_x.png a_y.png b_y.png", None, "in '_x', '_y': pass one as --mask-endi"),
        ("a.jpg b.jpg", "a_x.png b_x.png", "_z", "end in '_x': pass one as --mask-ending, but got '_z'"),
        ("b.jpg cafe\u0301.jpg", "b.png caf\u00e9.png", None, ""),
        ("1.jpg 2.jpg", "31.png 42.png", None, "2 of 2 files have no mask in "),
        ("1.jpg 2.jpg", "10.png 20.png", None, "2 of 2 files have no mask in "),
        ("a.jpg b.jpg c.jpg", "a_L.png b_L.png", None, "c.jpg, for example, needs c_L.png there"),
        ("a.jpg b.jpg", "a_L.png b_L.png c_L.png", None, "c_L.png, for example, needs c.jpg or .png there"),
        ("a.jpg b.jpg", "a.png b.png b.bmp", None, "b.bmp and b.png have the same name: remove one."),
        ("a.jpg a.png", "a.png", None, "a.jpg and a.png have the same name: remove one."),
    ],
)
def test_the_mask_of_an_image_is_found_by_its_name(images, masks, ending, said, tmp_path):
    put(tmp_path, {f"images/{name}": "" for name in images.split()})
    put(tmp_path, {f"masks/{name}": "" for name in masks.split()})
    folders = tmp_path / "images", tmp_path / "masks"
    if said:
        assert said in error_of(files_of, *folders, ending)
    else:
        found = [str(mask.relative_to(folders[1])) for _, mask in files_of(*folders, ending)]
        assert found == masks.split()[:2]


LAYOUTS = {"images masks": "classes.txt", "img masks_machine": "class_dict.csv"}
LAYOUTS |= {"train trainannot": "label_colors.txt", "train train_labels": "labels.txt"}
LAYOUTS |= {"JPEGImages SegmentationClass": "labelmap.txt"}
LAYOUTS |= {"JPEGImages SegmentationClassPNG": "class_names.txt"}


@pytest.mark.parametrize(("names", "table"), LAYOUTS.items())
def test_layouts_of_folders(names, table, tmp_path):
    put(write(tmp_path, {"a": BLOCKS}, names), {table: "sky\nrock face\nsea\n"})
    if "JPEG" in names:
        put(tmp_path, {"JPEGImages/of another task.jpg": Image.new("RGB", (4, 3))})
    data = read([tmp_path], 256)["train"]
    assert [entry["name"] for entry in data.classes] == ["sky", "rock face", "sea"]
    assert np.array_equal([mask for _, mask in data.pairs], [BLOCKS])


# Values of masks.


def values(*numbers: int, kind: type = np.uint8) -> np.ndarray:
    return np.array([numbers] * 8, kind)


BACKGROUND_ROAD, LABELME = "background\nroad\n", "__ignore__\n_background_\ncat\n"
VOC, NUMBERS = "background\naeroplane\nvoid\n", "14 road 255 80 0\n7 Void 0 160 255\n0 sky 0 0 0\n"


@pytest.mark.parametrize(
    ("table", "masks", "labels", "truth"),
    [
        (BACKGROUND_ROAD, [values(0, 255), values(0, 0)], [0, 255], [[0, 1], [0, 0]]),
        ("0 a 0 0 0\n1 b 9 9 9\n", [values(0, 255)], [0, 255], [[0, 1]]),
        (BACKGROUND_ROAD, [np.dstack([values(0, 255)] * 3)], [0, 255], [[0, 1]]),
        (BACKGROUND_ROAD, [values(0, 1, 255), values(0, 255, 0)], [0, 1], [[0, 1, 255], [0, 255, 0]]),
        (None, [values(0, 85, 170, 255)], [0, 85, 170, 255], [[0, 1, 2, 3]]),
        (None, [values(0, 128, 255)], [0, 128, 255], [[0, 1, 2]]),
        (None, [values(0, 255, 300, kind=np.uint16)], [0, 255, 300], [[0, 1, 2]]),
        (None, [values(0, 1, kind=np.float32)], [0, 1], [[0, 1]]),
        ("7 a\n255 b", [values(7, 255)], [7, 255], [[0, 1]]),
        ("0 a\n1 b\n255 void", [values(0, 255)], [0, 1], [[0, 255]]),
        (LABELME, [values(0, 1, 255)], [0, 1], [[0, 1, 255]]),
        (LABELME, [values(0, 1, -1, kind=np.int32)], [0, 1], [[0, 1, 255]]),
        (VOC, [values(0, 1, 255)], [0, 1], [[0, 1, 255]]),
        (VOC, [values(0, 1, 2, 255)], [0, 1, 2], [[0, 1, 255, 255]]),
        ("name,trainId\na,0\nb,1\nc,255\nd,255", [values(0, 1, 255)], [0, 1], [[0, 1, 255]]),
        (None, [values(0, 255)], [0, 255], [[0, 1]]),
        (None, [values(1, 2, 255)], [1, 2], [[0, 1, 255]]),
        (None, [values(0, 1, kind=bool)], [0, 1], [[0, 1]]),
        (None, [in_palette(values(0, 1, 2))], [0, 1, 2], [[0, 1, 2]]),
        (BY_COLOUR, [in_palette(values(0, 1, 2))], ["fire", "sea", "rock"], [[2, 1, 0]]),
        ("a\nb\nc", [in_palette(values(0, 1, 2), COLOURS + 1)], [0, 1, 2], [[0, 1, 2]]),
        (None, [np.dstack([COLOURS[values(0, 1)], values(0, 255)])], ["#000000", "#00a0ff"], [[0, 1]]),
        (None, [COLOURS[values(0, 1, 2)]], ["#000000", "#00a0ff", "#ff5000"], [[0, 1, 2]]),
        (NUMBERS, [values(0, 7, 14)], [14, 7, 0], [[2, 255, 0]]),
        (NUMBERS, [COLOURS[values(0, 1, 2)]], ["road", "Void", "sky"], [[2, 255, 0]]),
    ],
)
def test_what_255_means_is_decided_once_for_all_masks(table, masks, labels, truth, tmp_path):
    other = write(tmp_path / "b", [masks[0]], kind="tif")
    data = read([write(tmp_path / "a", masks, kind="tif", table=table)], 256, others={"test": [other]})
    assert [entry.get("label", entry["name"]) for entry in data["train"].classes] == labels
    assert [found[0].tolist() for _, found in data["train"].pairs] == truth
    assert data["test"].pairs[0][1][0].tolist() == truth[0]


@pytest.mark.parametrize("kind", ["png", "tiff", "bmp", "gif", "ppm", "webp"])
def test_lossless_formats_of_masks_are_read(kind, tmp_path):
    content = encoded(np.dstack([BLOCKS] * 3) if kind == "webp" else BLOCKS, kind, lossless=True)
    put(tmp_path, pairs([BLOCKS], kind=kind) | {f"masks/0.{kind}": content})
    assert np.array_equal(read([tmp_path], 256)["train"].pairs[0][1], BLOCKS)


# Training and label maps.


def train(folder: Path, *options: object, status: int = 0) -> str:
    """The output of a short training on a folder."""
    options = "--data", folder, "--steps", 1, "--batch", 1, "--save-every", 1, *options
    said = call("train", "--model", "segnet", "--output", folder / "run", *options, status=status)
    return said.stderr if status else said.stdout


@pytest.mark.parametrize(
    ("masks", "table", "labels", "mode", "said"),
    [
        (BLOCKS * 13 + 7, "7 road\n20 car\n33 sky\n", [7, 20, 33], "P", "labels (7 road, 20 car, 33 sky)"),
        (BLOCKS.astype(np.uint16) * 500, None, [0, 500, 1000], "I;16", "labels (0 0, 500 500, 1000 1000)"),
        (np.minimum(BLOCKS, 1) * 255, "0 sky 0 0 0\n1 sea 9 9 9", [0, 255], "P", "labels (0 sky, 255 sea)"),
        (COLOURS[BLOCKS], BY_COLOUR, [0, 1, 2], "P", "class indices (0 fire, 1 sea, 2 rock)"),
    ],
)
def test_label_maps_have_the_numbers_of_masks(masks, table, labels, mode, said, tmp_path):
    folder = write(tmp_path / "d", [masks] * 5, table=table)
    printed = train(folder)
    assert f"images/0.png has the mask {folder}/masks/0.png, and so on." in printed
    model, options = zoo.from_pretrained(folder / "run/segnet"), ("--output", folder / "x.png")
    first = call("predict", folder / "run/segnet", folder / "images/0.png", *options).stdout
    assert first.startswith(f"Numbers in the label maps: {said}")
    image = Image.open(folder / "x-0.png")
    assert image.mode == mode
    numbers = model.predict(Image.open(folder / "images/0.png"))
    assert np.array_equal(image, np.array(labels)[numbers])
    if mode == "P":
        colours = np.array(image.getpalette()).reshape(-1, 3)
        assert [colours[n].tolist() for n in labels] == [entry["colour"] for entry in model.about.classes]
    kept = [entry.get("label") for entry in model.about.classes]
    assert kept == (labels if masks.ndim == 2 else [None] * 3)
    if table and table.startswith("7"):  # a resumed run with other numbers
        for path in (folder / "masks").iterdir():
            Image.fromarray(np.array(Image.open(path)) + 1).save(path)
        (folder / "classes.txt").write_text("8 road\n21 car\n34 sky\n")
        assert "labels [7, 20, 33], now [8, 21, 34]" in train(folder, "--resume", "--steps", 2, status=1)


def test_an_absent_class_stops_training_where_255_may_stand_for_it(tmp_path):
    masks = [values(*([0, 1, 255] * 8))] * 5
    folder = write(tmp_path / "d", masks, table="background\nroad\ncar\n")
    (line,) = train(folder, status=1).splitlines()
    assert line.startswith("255 has 33.3% of the pixels and may be a class or mean ignored: no mask has car.")
    assert line.endswith(" with a last line 'void' if it means ignored.")
    assert not (folder / "run").exists()
    (folder / "classes.txt").write_text("background\nroad\ncar\nvoid\n")
    said = train(folder)
    assert "Pixels for train: background 33.3%, road 33.3%, car 0.0%, ignored 33.3%.\n" in said
    assert "Not in the masks for train: car.\n" in said
    report = json.loads((folder / "run/metrics.json").read_text())
    for split, images in (("train", 4), ("validation", 1)):
        counted = {"counted_classes": 2, "counted_pixels": images * 128, "ignored_share": 1 / 3}
        assert {key: report[split][key] for key in counted} == pytest.approx(counted)
        pixels = {"background": 64 * images, "road": 64 * images, "car": 0, "ignored": 64 * images}
        read = {"images": images, "sizes": {"24 x 8": images}, "depths": {"8 bits": images}, "pixels": pixels}
        assert {key: report["read"][split][key] for key in read} == read
    (folder / "run/data.png").write_bytes(b"looked at")
    train(folder, "--resume", "--steps", 2)
    assert (folder / "run/data.png").read_bytes() == b"looked at"
    train(folder, "--overwrite")
    assert (folder / "run/data.png").read_bytes()[:4] == b"\x89PNG"


def test_the_mean_iou_needs_two_classes(tmp_path):
    """Validation masks with one class only."""
    folder = write(tmp_path / "d", [BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS * 0])
    said = train(folder, "--steps", 2)
    assert "validation mean IoU -\n" in said
    assert "the best so far" not in said
    report = json.loads((folder / "run/metrics.json").read_text())["validation"]
    assert (report["miou"], report["counted_classes"]) == (None, 1)
    assert f"{'mean IoU':22}{'-':>12}\n" in said


# Photographs.


def test_photographs_of_an_iphone(tmp_path, monkeypatch):
    """HEIC with a rotation, a profile of Display P3 and 10 bits; the encoder is for this test only."""
    heif = pytest.importorskip("pillow_heif", reason="writes HEIC files")
    picture = np.zeros((32, 48, 3), np.uint8)
    picture[:16, :16], picture[16:, 24:] = (200, 40, 90), (10, 220, 60)
    lossless, profile = {"quality": -1, "chroma": 444, "matrix_coefficients": 0}, b"Display P3" * 20
    image = heif.from_bytes("RGB", (48, 32), picture.tobytes())
    image.save(tmp_path / "a.HEIC", exif=TURNED.tobytes(), icc_profile=profile, **lossless)
    deep = heif.from_bytes("RGB;16", (48, 32), (picture.astype(np.uint16) * 257).tobytes())
    deep.save(tmp_path / "b.heif", **lossless)
    for name, expected in (("a.HEIC", np.rot90(picture, -1)), ("b.heif", picture)):
        found, _ = open_picture(tmp_path / name)
        assert found.mode == "RGB"
        assert np.abs(np.array(found).astype(int) - expected).max() <= 1
    assert open_picture(tmp_path / "a.HEIC")[0].info["icc_profile"] == profile
    content = (tmp_path / "a.HEIC").read_bytes()
    (tmp_path / "c.heic").write_bytes(content[: len(content) // 2])
    assert "c.heic is a damaged HEIC file: " in error_of(open_picture, tmp_path / "c.heic")
    monkeypatch.delitem(Image.OPEN, "HEIF")
    said = error_of(open_picture, tmp_path / "a.HEIC")
    assert re.search(r"a\.HEIC is a HEIC file: .*sips -s format jpeg 'a\.HEIC' --out 'a\.jpg'", said)
