"""Masks, the class file, and what a training does with them."""

import json
import re
from pathlib import Path

import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from helpers.masks import BLOCKS, COLOURS, TURNED, encoded, error_of, mapped, pairs, png, put, write
from helpers.programs import call
from mlx_unpool_zoo.data import read
from mlx_unpool_zoo.data.pictures import open_picture
from PIL import Image, ImageFilter

NAMES = "0 sky\n1 sea\n2 fire\n"
BY_COLOUR = "# by colour\n#ff5000 fire\n#00a0ff sea  # blue\n#000000 rock\n"
PHOTOGRAPH = np.array(Image.open(Path(zoo.__file__).parent / "portrait.jpg").resize((96, 96)))


def values(*numbers: int, kind: type = np.uint8) -> np.ndarray:
    return np.array([numbers] * 8, kind)


# The class file decides.

RGB, ALPHA = COLOURS[values(0, 1, 2)], values(255, 255, 255)


@pytest.mark.parametrize(
    ("classes", "mask", "labels", "truth"),
    [
        (NAMES, values(0, 1, 2), [0, 1, 2], [0, 1, 2]),
        ("2 fire\n0 sky\n1 sea", values(0, 1, 2), [2, 0, 1], [1, 2, 0]),  # in the order of the file
        ("0 sky\n1 sea\n255 ignored", values(0, 1, 255), [0, 1], [0, 1, 255]),
        ("0 ignored\t# no\n1 sea\n2 leaf #2", values(0, 1, 2), [1, 2], [255, 0, 1]),
        ("0 sky\n255 sea\n", values(0, 255), [0, 255], [0, 1]),
        ("0 sky\n1 sea\n2 sea\n9 ignored", values(0, 1, 2), [0, 1], [0, 1, 1]),  # one class
        ("\ufeff# a comment\n#\n\n0  traffic light  # 3 %\n1\troad", values(0, 1), [0, 1], [0, 1]),
        ("0 leaf #1\n1 area 51 sector 7\n2 7", values(0, 1, 2), [0, 1, 2], [0, 1, 2]),
        ("0 a\n255 b\n300 c", values(0, 255, 300, kind=np.uint16), [0, 255, 300], [0, 1, 2]),
        ("0 a\n1 b", values(0, 1, kind=bool), [0, 1], [0, 1]),
        ("0 a\n1 b\n2 c", mapped(values(0, 1, 2)), [0, 1, 2], [0, 1, 2]),
        ("0 a\n1 b\n2 c", np.dstack([values(0, 1, 2), ALPHA]), [0, 1, 2], [0, 1, 2]),
        (BY_COLOUR, RGB, ["fire", "sea", "rock"], [2, 1, 0]),
        (BY_COLOUR, np.dstack([RGB, ALPHA]), ["fire", "sea", "rock"], [2, 1, 0]),
        ("#000000 a\n#ffffff b", np.dstack([values(0, 255)] * 3), ["a", "b"], [0, 1]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["png", "tif"])
def test_the_class_file_says_what_values_mean(classes, mask, labels, truth, kind, tmp_path):
    record = read([write(tmp_path, [mask], kind=kind, classes=classes)], 256)["train"]
    assert [entry.get("label", entry["name"]) for entry in record.classes] == labels
    assert record.pairs[0][1][0].tolist() == truth


@pytest.mark.parametrize("bits", [2, 4])
def test_grey_masks_of_few_bits_have_their_numbers(bits, tmp_path):
    record = read([put(tmp_path, pairs([BLOCKS]) | {"masks/0.png": png(BLOCKS, bits)})], 256)[
        "train"
    ]
    assert np.array_equal(record.pairs[0][1], BLOCKS)


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ("sky\nsea\n", "line 1: it must be VALUE NAME, such as '1 road' or '#804080 road', but is"),
        ("128 64 128 road", "line 1: it must have one value, but has two: "),
        ("0 2 background", "line 1: it must have one value, but has two: "),
        ("0  #000000 background", "line 1: it must have one value, but has two: "),
        ("0 sky\n1 sea 0 160 255", "line 2: a colour, as #804080, is in place of the number: "),
        ("0 = sky", "line 1: it must have only spaces between value and name: '0 = sky'."),
        ("0,sky", "line 1: it must be VALUE NAME, such as"),
        ('{"sky": 0}', "line 1: it must be VALUE NAME, such as"),
        ("0 sky\n1  # comment", "line 2: it must be VALUE NAME, such as"),
        ("#fff x", "A colour has six hexadecimal digits; a comment begins with '# '."),
        ("0 sky\n70000 sea", "line 2: a number must be at most 65535, but is 70000."),
        ("0 sky\n0 sea", "line 2: 0 is in the file twice."),
        ("0 sky\n#0000ff sea", "must have numbers or colours, but has both."),
        ("0 sky\n255 ignored", "must have 2 to 254 classes besides ignored, but has 1."),
        ("0 sky\n2 void", "line 2: 'void' can mean two things. Call it ignored (two spaces"),
        ("0 sky\n2 _Ignore_", "line 2: '_Ignore_' can mean two things. "),
        ("0 sky\n2 Unlabeled", "line 2: 'Unlabeled' can mean two things. "),
        ("0 sky\n1 ignored # one space", "line 2: 'ignored # one space' can mean two things. "),
        ("0 sky\n1 void (pores)", "line 2: 'void (pores)' can mean two things. "),
        ("0 sky\n1 ?", "line 2: write a name for 1 in place of ?."),
        ("0 sky\n1 sea ?", "line 2: write a name for 1 in place of ?."),
        (b"0 sky\n1 \xff\xfe", "must be text in UTF-8."),
        ("0 sky\n1 sea", "not list 2 (33.3% of the pixels): see {r}/masks/0.png, one of 1 such"),
        (f"{NAMES}3 sun\n", "no training mask has sun. Move images that have it to the training "),
        (f"{NAMES}3 sun\n", "or call it ignored in {r}/classes.txt, or remove its line if "),
        (BY_COLOUR, "These masks have numbers (or indices of a palette), but the file has co"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_class_file_is_named(classes, said, tmp_path):
    files = pairs([values(0, 1, 2)]) | {"classes.txt": classes}
    found = error_of(read, [put(tmp_path, files)], 256)
    assert found.startswith((f"{tmp_path}/classes.txt", "no training mask"))
    assert said.format(r=tmp_path) in found


def blurred(mask: np.ndarray) -> np.ndarray:
    return np.array(Image.fromarray(mask).filter(ImageFilter.GaussianBlur(2)))


LETTERS = np.kron(BLOCKS % 2 * 255, np.ones((4, 4), np.uint8))


GREY = np.array(Image.fromarray(PHOTOGRAPH).convert("L"))


@pytest.mark.parametrize("mask", [blurred(LETTERS), blurred(LETTERS) // 16 * 17, GREY])
def test_smoothed_masks_and_photographs_have_values_that_are_not_listed(mask, tmp_path):
    said = error_of(read, [write(tmp_path, [mask], classes="0 sky\n255 sea")], 256)
    assert "Masks that were saved as JPEG, resized with interpolation or drawn with smooth" in said
    assert "ignored" not in said


def test_without_a_class_file_its_lines_are_printed_and_written_without_names(tmp_path):
    masks = [BLOCKS] * 5 + [np.where(np.arange(32) == 9, 255, BLOCKS).astype(np.uint8)] * 5
    folder = write(tmp_path / "d", masks, classes="")
    (folder / "classes.txt").unlink()
    said = call("train", "--data", folder, status=1).stderr
    assert said.startswith(f"There is no class file {folder}/classes.txt. Write it, or add ")
    assert "# 255 has few pixels, in masks with other values. If it marks outlines" in said
    assert "\n0 ?  # 32.8% of the pixels\n1 ?  # 32.8% of the pixels\n2 ?  # 32.8% of" in said
    call("train", "--data", folder, "--write-classes")
    assert (folder / "classes.txt").read_text() == said.split("\n\n", 1)[1]
    assert "line 4: write a name for 0 in place of ?." in error_of(read, [folder], 256)
    said = call("train", "--data", folder, "--write-classes", status=1).stderr
    assert "classes.txt exists: write the names into it" in said


def proposed(folder: Path, masks: list) -> str:
    """The proposed lines, or why there are none."""
    (write(folder, masks, classes="") / "classes.txt").unlink()
    with pytest.raises(ValueError, match=r"masks|class file|values") as error:
        read([folder], 256)
    return str(error.value)


CELLS = [np.minimum(np.arange(400).reshape(20, 20) // 40, m).astype(np.uint8) for m in (3, 5, 8)]
TRIMAP = values(*([0] * 4 + [128] * 3 + [255] * 5))


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        (
            [values(0, 255)],
            "Two values: usually one is the background and the other one the object.",
        ),
        (
            CELLS,
            "Every mask has all numbers from 0 to another one: if these number objects, write ",
        ),
        (
            [values(0, 1), values(0, 255)],
            "# No mask has more than two values, but these differ: 0 and 1 in ",
        ),
        ([blurred(LETTERS) // 16 * 17], "have few pixels and lie between frequent values. Masks "),
        ([mapped(values(0, 1, 2))], "2 ?  # 33.3% of the pixels, #ff5000 in the palette"),
        ([COLOURS[values(0, 1)]], "#00a0ff ?  # 50.0% of the pixels"),
        ([values(*range(40))], "# So many values are rarely classes"),
        ([values(*range(300), kind=np.uint16)], "the masks have 300 values, "),
        ([PHOTOGRAPH], "values: it is a photograph, or was saved as JPEG before."),
        ([values(0, 0)], "every pixel of the masks is 0, so they show nothing."),
    ],
)
def test_proposed_lines_say_what_may_be_wrong(masks, said, tmp_path):
    assert said in proposed(tmp_path, masks)


@pytest.mark.parametrize(
    "masks",
    [
        [values(0, 1), values(0, 255)],
        [values(0, 255)],
        [TRIMAP],
        [blurred(LETTERS) // 16 * 17],
        [values(0, 1, 255)],  # not rare
    ],
)
def test_only_a_rare_255_beside_objects_may_be_ignored(masks, tmp_path):
    assert "If it marks outlines" not in proposed(tmp_path, masks)


def test_values_with_one_name_are_printed_as_one_class(tmp_path):
    masks = write(tmp_path, [values(0, 1, 2, 255)], classes="0 a\n1 leaf\n2 leaf\n255 ignored")
    assert "Values of one class: 1, 2 = leaf." in read([masks], 256)["train"].lines()


def test_a_class_that_the_model_has_needs_no_pixels(tmp_path):
    folder = write(tmp_path, [values(0, 1)], classes="0 sky\n1 sea\n2 fire\n")
    lines = read([folder], 256, known={"fire"})["train"].lines()
    assert "Warning: no mask for train has fire." in lines


def test_what_is_lost_by_scaling_is_named(tmp_path):
    mask = np.zeros((96, 96), np.uint8)
    mask[:2, :2] = mask[40:42, 40:42] = mask[80:82, 80:82] = 1
    write(tmp_path, [mask])
    (line,) = read([tmp_path], 48)["train"].notes
    assert (
        "1 of the 1 masks with 1 have fewer than 4 of its pixels after scaling to --side 48" in line
    )
    assert not read([tmp_path], 96)["train"].notes
    assert error_of(read, [tmp_path], 8).startswith("no pixel of 1 is left after scaling")


# Files of masks.

DRAWN, PAGES = COLOURS[BLOCKS], {"save_all": True, "append_images": [Image.new("L", (32, 24))]}
CLEAR = np.dstack([DRAWN, np.where(BLOCKS, 255, 0).astype(np.uint8)])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            encoded(BLOCKS, "JPEG"),
            "must be PNG, TIFF or BMP, but is JPEG or has its compression. JPEG changes",
        ),
        (
            encoded(DRAWN, "TIFF", compression="jpeg"),
            "must be PNG, TIFF or BMP, but is TIFF or has its compressi",
        ),
        (encoded(BLOCKS, "GIF"), "must be PNG, TIFF or BMP, but is GIF"),
        (encoded(BLOCKS, "TIFF", **PAGES), "must have one page, but has 2: save"),
        (
            encoded(BLOCKS, "PNG", exif=TURNED),
            "is turned by its EXIF data: save it upright, without them.",
        ),
        (
            encoded(BLOCKS, "TIFF", tiffinfo={262: 0}),
            "is a TIFF with WhiteIsZero, which some programs invert: save it as PNG, and check",
        ),
        (
            encoded(BLOCKS.astype(np.float32), "TIFF"),
            "has floating-point numbers. Save whole ones, for example with Image.fromarray(",
        ),
        (
            png(np.dstack([BLOCKS] * 3)),
            "must have one channel of 1, 8 or 16 bits, a palette, or RGB of 8 bits",
        ),
        (
            encoded(BLOCKS.astype(np.int32) - 1, "TIFF"),
            "must have numbers from 0 to 65535, but has -1 to 1.",
        ),
        (
            CLEAR,
            "has transparent pixels, whose colour is not seen. Fill them with a colour that no",
        ),
        (encoded(BLOCKS, "PNG")[:-30], "cannot be read as an image: "),
    ],
)
def test_files_whose_values_may_not_be_those_that_were_drawn_are_refused(content, said, tmp_path):
    found = error_of(read, [put(tmp_path, pairs([BLOCKS]) | {"masks/0.png": content})], 256)
    assert found.startswith(f"{tmp_path}/masks/0.png {said}")


def test_palettes_that_differ_are_refused_also_between_splits(tmp_path):
    files = pairs([mapped(BLOCKS)], "train/images train/masks")
    files |= pairs([mapped(BLOCKS, COLOURS[::-1])], "val/images val/masks")
    said = error_of(read, [put(tmp_path, files)], 256)
    assert "the palettes of the masks differ: 0 is #000000 in " in said
    assert f", but #ff5000 in {tmp_path}/val/masks/0.png. Save all masks in RGB" in said


TWO, WHITE_FIRST = (
    COLOURS[:2] * 0 + np.array([[0], [255]], np.uint8),
    np.array([[255] * 3, [0] * 3]),
)
BITS = Image.fromarray(values(0, 255)).convert("1")
IDENTITY = np.arange(256, dtype=np.uint8)[:, None].repeat(3, 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (values(0, 1, 255), BITS),
        (BITS, mapped(values(0, 1), WHITE_FIRST.astype(np.uint8))),
        (values(0, 1), mapped(values(0, 1), TWO)),
        (BITS, mapped(values(0, 1), IDENTITY)),
        (values(0, 1), COLOURS[values(0, 1)]),
    ],
)
def test_masks_of_different_forms_are_refused(one, other, tmp_path):
    said = error_of(read, [write(tmp_path, [one, other], classes="0 a\n1 b\n")], 256)
    assert "one value can mean different things. Save all masks in RGB, of 8 bits" in said


def test_a_palette_that_is_the_identity_has_numbers(tmp_path):
    numbers = values(0, 1, 2)
    masks = [numbers, mapped(numbers, IDENTITY), numbers.astype(np.uint16)]
    pairs_read = read([write(tmp_path, masks)], 256)["train"].pairs
    assert all(np.array_equal(truth, numbers) for _, truth in pairs_read)


def test_values_of_validation_masks_must_be_listed_and_may_be_fewer(tmp_path):
    files = pairs([BLOCKS], "train/images train/masks", classes=NAMES)
    files |= pairs([BLOCKS % 2, BLOCKS % 2], "val/images val/masks", classes=NAMES)
    lines = read([put(tmp_path, files)], 256)["validation"].lines()
    assert "Warning: no mask for validation has fire." in lines
    put(tmp_path, {"val/masks/1.png": BLOCKS + 5})
    assert "does not list 5 (16.7% of the pixels), 6 (1" in error_of(read, [tmp_path], 256)
    (tmp_path / "classes.txt").write_text(f"{NAMES}5 ignored\n6 ignored\n7 ignored")
    put(tmp_path, {f"val/masks/{name}.png": BLOCKS + 5 for name in (0, 1)})
    assert error_of(read, [tmp_path], 256) == "every pixel of the masks for validation is ignored."


# Training and label maps.


def train(folder: Path, *options: object, status: int = 0) -> str:
    """The output of a short training on a folder."""
    options = "--data", folder, "--steps", 1, "--batch", 1, "--save-every", 1, *options
    said = call("train", "--model", "segnet", "--output", folder / "runs", *options, status=status)
    return said.stderr if status else said.stdout


@pytest.mark.parametrize(
    ("masks", "classes", "labels", "mode", "said"),
    [
        (
            BLOCKS * 13 + 7,
            "7 road\n20 car\n33 sky\n",
            [7, 20, 33],
            "P",
            "labels (7 road, 20 car, 33 sky)",
        ),
        (
            BLOCKS.astype(np.uint16) * 500,
            None,
            [0, 500, 1000],
            "I;16",
            "labels (0 0, 500 500, 1000 1000)",
        ),
        (np.minimum(BLOCKS, 1) * 255, "0 sky\n255 sea", [0, 255], "P", "labels (0 sky, 255 sea)"),
        (COLOURS[BLOCKS], BY_COLOUR, [0, 1, 2], "P", "class indices (0 fire, 1 sea, 2 rock)"),
    ],
)
def test_label_maps_have_the_numbers_of_masks(masks, classes, labels, mode, said, tmp_path):
    folder = write(tmp_path / "d", [masks] * 5, classes=classes)
    printed = train(folder)
    assert f"images/0.png has the mask {folder}/masks/0.png, and so on.\n" in printed
    assert f"Classes: {folder}/classes.txt.\n" in printed
    model, options = zoo.from_pretrained(folder / "runs/segnet"), ("--output", tmp_path / "x.png")
    first = call("predict", folder / "runs/segnet", folder / "images/0.png", *options).stdout
    assert first.startswith(f"Numbers in the label maps: {said}")
    image = Image.open(tmp_path / "x-0.png")
    assert image.mode == mode
    numbers = model.predict(Image.open(folder / "images/0.png"))
    assert [entry.get("label", n) for n, entry in enumerate(model.about.classes)] == labels
    assert np.array_equal(image, np.array(labels)[numbers])
    if mode == "P":
        colours = np.array(image.getpalette()).reshape(-1, 3)
        assert [colours[n].tolist() for n in labels] == [
            entry["colour"] for entry in model.about.classes
        ]
    if labels[0] == 7:  # a resumed run with other numbers
        for path in (folder / "masks").iterdir():
            Image.fromarray(np.array(Image.open(path)) + 1).save(path)
        (folder / "classes.txt").write_text("8 road\n21 car\n34 sky\n")
        assert "labels [7, 20, 33], now [8, 21, 34]" in train(
            folder, "--resume", "--steps", 2, status=1
        )


def test_ignored_pixels_are_counted_apart(tmp_path):
    folder = write(
        tmp_path / "d", [values(*([0, 1, 255] * 8))] * 5, classes="0 sky\n1 sea\n255 ignored\n"
    )
    assert "Pixels for train: sky 33.3%, sea 33.3%, ignored 33.3%.\n" in train(folder)
    report = json.loads((folder / "runs/metrics.json").read_text())
    for split, images in (("train", 4), ("validation", 1)):
        counted = {"counted_classes": 2, "counted_pixels": images * 128, "ignored_share": 1 / 3}
        assert {key: report[split][key] for key in counted} == pytest.approx(counted)
        pixels = {"sky": 64 * images, "sea": 64 * images, "ignored": 64 * images}
        said = {
            "images": images,
            "sizes": {"24 x 8": images},
            "depths": {"8 bits": images},
            "pixels": pixels,
        }
        assert {key: report["read"][split][key] for key in said} == said
    (folder / "runs/data.png").write_bytes(b"looked at")
    train(folder, "--resume", "--steps", 2)
    assert (folder / "runs/data.png").read_bytes() == b"looked at"
    train(folder, "--overwrite")
    assert (folder / "runs/data.png").read_bytes()[:4] == b"\x89PNG"


def test_the_mean_iou_needs_two_classes(tmp_path):
    """Validation masks with one class only."""
    folder = write(tmp_path / "d", [BLOCKS, BLOCKS, BLOCKS, BLOCKS, BLOCKS * 0])
    said = train(folder, "--steps", 2)
    assert "validation mean IoU -\n" in said
    assert "the best so far" not in said
    report = json.loads((folder / "runs/metrics.json").read_text())["validation"]
    assert (report["miou"], report["counted_classes"]) == (None, 1)
    assert f"{'mean IoU':22}{'-':>12}\n" in said


# Photographs.


def test_photographs_of_an_iphone(tmp_path, monkeypatch):
    """HEIC with a rotation, a profile of Display P3 and 10 bits; the encoder is for this test."""
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
    assert re.search(
        r"a\.HEIC is a HEIC file: .*sips -s format jpeg 'a\.HEIC' --out 'a\.jpg'", said
    )
