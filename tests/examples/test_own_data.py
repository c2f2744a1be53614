"""Folders of own data: splits, smoothed masks, the meaning of values, images of more than 8 bits."""

import io
import json
import re
import zlib
from pathlib import Path

import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from helpers.masks import COLOURS, error_of, in_palette, write
from helpers.programs import call
from helpers.small_models import randomised
from mlx_unpool_zoo.classes import not_drawn
from mlx_unpool_zoo.commands.app import Page
from mlx_unpool_zoo.data import read
from mlx_unpool_zoo.data.layouts import find
from mlx_unpool_zoo.data.pictures import range_of, read_picture
from mlx_unpool_zoo.drawing import overlaid
from PIL import Image, ImageFilter

# Layouts: files of each split, with {s} for the folder of the split and {k} for two names.

PAIRS = {"images/{s}/{k}.jpg": "masks/{s}/{k}.png", "{s}/images/{k}.jpg": "{s}/masks/{k}.png"}
PAIRS |= {"img_dir/{s}/{k}.jpg": "ann_dir/{s}/{k}.png", "Images/{s}/{k}.jpg": "Annotations/{s}/{k}.png"}
PAIRS |= {"{s}/{k}.jpg": "{s}/{k}_mask.png", "{s}/{k}.png": "{s}/{k}_mask.png"}
PAIRS |= {"{s}_images/{k}.jpg": "{s}_masks/{k}.png", "images/{s}/{k}.png": "masks/{k}.png"}
PAIRS |= {"{s}/{k}.PNG": "{s}annot/{k}.png", "{s}/{k}.tif": "{s}_labels/{k}_L.png"}
PAIRS |= {"leftImg8bit/{s}/b/{k}_leftImg8bit.png": "gtFine/{s}/b/{k}_gtFine_labelIds.png"}
SPLITS = ["train val test", "training validation testing", "Train Valid TEST", "train2017 eval2017 test2017"]
SPLITS += ["training dev test"]


def touch(root: Path, *patterns: str, splits: str = "") -> Path:
    for name in {p.format(s=s, k=f"{k}{s}") for p in patterns for s in splits.split() or [""] for k in "ab"}:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def counted(root: Path) -> dict[str, int]:
    return {split: len(found.files) for split, found in find([root]).items()}


@pytest.mark.parametrize("pair", PAIRS.items())
@pytest.mark.parametrize("names", SPLITS)
def test_splits_are_found_in_every_layout_and_form_of_their_names(pair, names, tmp_path):
    touch(tmp_path, *pair, splits=names)
    assert counted(tmp_path) == {"train": 2, "validation": 2, "test": 2}


IN_ONE = ("images/{s}/{k}.jpg", "masks/{s}/{k}.png")


@pytest.mark.parametrize(
    ("patterns", "names", "more", "expected"),
    [
        (IN_ONE, "car train bus", "", {"train": 6}),  # a class
        (IN_ONE, "car train bus", "", "/images/train is a class or a group, as the folders beside it: all "),
        (IN_ONE, "", "val.txt", "{r} has lists of images, {r}/val.txt, but no train.txt."),
        (IN_ONE, "train", "", {"train": 2}),
        (IN_ONE, "", "images/._a.jpg images/._b.jpg masks/._a.png", {"train": 2}),  # of macOS
        (IN_ONE, "", "images/.thumbs/val/a.jpg images/.thumbs/train/a.jpg", {"train": 2}),
        (IN_ONE, "train val", "images/.cache/x.jpg", {"train": 2, "validation": 2}),
        (("images/x/{k}.jpg", "masks/x/{k}.png"), "", "images/.thumbs/q.jpg", {"train": 2}),
        (IN_ONE, "train val", "images/test/a.jpg", "test has no masks, and is not"),
        (IN_ONE, "train val", "images/test/a.jpg masks/test/readme.md", "test has no masks, and is not"),
        (("{s}/{k}.png", "{s}/{k}_mask.png"), "train", "test/1.png test/10.png", "test has no masks, and"),
        (("{s}/images/{k}.jpg", "{s}/masks/{k}.png"), "train val", "new/a.jpg", "new has pictures, and"),
        (IN_ONE, "north test", "", "--data {r}/images/north {r}/masks/north --test {r}/images/test {r}/m"),
        (IN_ONE, "train test car", "", "--data {r}/images/train {r}/masks/train --test {r}/images/test"),
        (IN_ONE, "val test", "", "images has test, val, of which some may be splits."),
        (IN_ONE, "train val", "images/a.jpg masks/a.png", "images has train, val, of which some may be"),
        (IN_ONE, "train2014 train2017 val", "", "train2014 and train2017 are both for train"),
        (IN_ONE, "", "labels/a.png", "masks and {r}/labels have masks: pass --data {r}/images {r}/masks."),
        (("x/{k}.jpg", "y/{k}.png"), "", "", "has x, y. It must have images/ and masks/, train/ and val/"),
    ],
)  # fmt: skip
def test_folders_that_are_no_splits(patterns, names, more, expected, tmp_path):
    touch(touch(tmp_path, *patterns, splits=names), *more.split())
    if isinstance(expected, dict):
        assert counted(tmp_path) == expected
    else:
        said = error_of(find, [tmp_path]) or " ".join(find([tmp_path])["train"].notes)
        assert expected.format(r=tmp_path) in said


LISTS = {"train.txt": "images/m11.jpg masks/m11_L.png\n\n", "val.txt": "m1.jpg"}


@pytest.mark.parametrize(
    ("folder", "lists", "expected"),
    [
        ("ImageSets/Segmentation", LISTS, {"train": ["m11"], "validation": ["m1"]}),
        ("", LISTS, {"train": ["m11"], "validation": ["m1"]}),
        ("", {"trainval.txt": "m1", "test.txt": "m11"}, {"train": ["m1"], "test": ["m11"]}),
        ("", {"train.txt": "m11\nm3"}, "train.txt lists m3, which has no image or no mask."),
    ],
)
@pytest.mark.parametrize("mask", ["masks/{}_L.png", "labels/{}.txt"])
def test_lists_of_splits_and_a_number_that_starts_another(folder, lists, expected, mask, tmp_path):
    touch(tmp_path, "images/m1.jpg", "images/m11.jpg", *map(mask.format, ("m1", "m11")))
    for name in ("m1", "m11") if "labels" in mask else ():
        (tmp_path / mask.format(name)).write_text("0 .1 .1 .5 .1 .5 .5")
    (tmp_path / "data.yaml").write_text("names: [a]")
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for name, text in (({"test.txt": "m"} if "masks" in mask else {}) | lists).items():  # without a mask
        (tmp_path / folder / name).write_text(text)
    if isinstance(expected, str):
        assert expected in error_of(find, [tmp_path])
    else:
        found = find([tmp_path])
        assert {split: [path.stem for path, _ in found[split].files] for split in found} == expected


# Smoothed masks.

random = np.random.default_rng(0)
GRID = np.kron(random.integers(0, 3, (6, 8)), np.ones((20, 20))).astype(np.uint8)
BINARY = np.where(GRID == 2, 255, 0).astype(np.uint8)
LINES = np.where(np.arange(160) % 40 == 0, 255, np.zeros((120, 160))).astype(np.uint8)
# Layers of one pixel.
RAMP = np.minimum(np.arange(120) - 50, 9).clip(0)[:, None].repeat(160, 1).astype(np.uint8)


def jpeg(values: np.ndarray, quality: int = 85) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(values).save(file, "JPEG", quality=quality)
    return np.array(Image.open(file))


def blurred(values: np.ndarray, radius: float = 1) -> np.ndarray:
    return np.array(Image.fromarray(values).filter(ImageFilter.GaussianBlur(radius)))


def resized(values: np.ndarray, how: Image.Resampling = Image.Resampling.BILINEAR) -> np.ndarray:
    return np.array(Image.fromarray(values).resize((101, 77), how))


BORDERED = np.where(blurred(GRID * 50, 1) == GRID * 50, GRID, 255).astype(np.uint8)
BINARIES = [(how(BINARY), True) for how in (jpeg, blurred, resized)]
BINARIES += [(np.dstack([how(BINARY)] * 3), True) for how in (jpeg, blurred, resized)]
PHOTOGRAPH = np.array(Image.open(Path(zoo.__file__).parent / "page/portrait.jpg").resize((64, 64)))
SMOOTHED = [*BINARIES, (resized(LINES), None), (blurred(LINES), None)]
SMOOTHED += [(how(COLOURS[GRID]), False) for how in (jpeg, blurred, resized)]
RIGHT = [BINARY, LINES, RAMP, BORDERED, COLOURS[GRID], in_palette(BORDERED), in_palette(GRID), RAMP * 25]
RIGHT += [np.where(blurred(BINARY) == BINARY, BINARY, 128).astype(np.uint8)]  # trimap
RIGHT += [resized(each, Image.Resampling.NEAREST) for each in (BINARY, GRID, RAMP, COLOURS[GRID], BORDERED)]


@pytest.mark.parametrize(("mask", "binary"), SMOOTHED)
def test_smoothed_masks_are_refused_and_binary_ones_have_a_threshold(mask, binary, tmp_path):
    write(tmp_path, [mask, BINARY[: len(mask), : len(mask[0])] if binary and mask.ndim == 2 else mask])
    said = error_of(read, [tmp_path], 256)
    assert "its edges are smoothed: save masks wi" in said or "or saved as JPEG: save the m" in said
    assert binary is None or ("or pass --threshold" in said) == binary
    if binary:
        level = mask if mask.ndim == 2 else mask[..., 0]
        truth = read([tmp_path], 256, threshold=True)["train"].pairs[0][1]
        assert np.array_equal(truth, level >= 128)


@pytest.mark.parametrize("mask", RIGHT)
def test_masks_with_sharp_edges_are_read(mask, tmp_path):
    if mask is RIGHT[7]:  # every value that a table lists passes
        (tmp_path / "classes.txt").write_text("\n".join(f"{25 * n} c{n}" for n in range(10)))
    assert len(read([write(tmp_path, [mask] * 2)], 256)["train"].pairs) == 2


@pytest.mark.parametrize(
    ("mask", "options", "said"),
    [
        (PHOTOGRAPH, {}, "0.png seems to be a photograph, or a mask drawn over one or saved as"),
        (np.array(Image.fromarray(PHOTOGRAPH).convert("L")), {}, "0.png seems to be a photograph"),
        (np.kron(PHOTOGRAPH, np.ones((3, 3, 1), np.uint8)) // 2 + 40, {}, "0.png has 2933 values. It seems"),
        (np.dstack([PHOTOGRAPH, BINARY[:64, :64]]), {}, "save the alpha channel instead"),
        (BINARY * 0, {}, "all masks are black: every pixel of the masks is 0"),
        (COLOURS[GRID], {"threshold": True}, "--threshold is for binary masks, but "),
        (np.array([0, 128, 255], np.uint8)[GRID], {"threshold": True}, "of the pixels have 128."),
    ],
)  # fmt: skip
def test_pictures_that_are_no_masks_are_named(mask, options, said, tmp_path):
    assert said in error_of(read, [write(tmp_path, [mask])], 256, **options)


# What values mean.


def bands(*numbers: int, most: int | None = None) -> np.ndarray:
    row = np.repeat(np.array(numbers, np.uint8), [40 if n == most else 4 for n in numbers])
    return row[None].repeat(8, 0)


SHADES = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0], *[[0, 0, 0]] * 252, [224, 224, 192]], np.uint8)
CAMVID = "\n".join(f"c{n}" for n in range(11))
FIVE, ONE_COLOUR = "car\nroad\ntree\nsky\ndog\n", "a 255 0 0\nb 255 0 0\nc 0 0 0\n"


@pytest.mark.parametrize(
    ("table", "mask", "expected"),
    [
        ("1 cat\n2 dog\n", bands(0, 1, 2), "0 background, 1 cat, 2 dog"),
        ("1 cat\n2 dog\n255 void\n", bands(0, 1, 2), "0 background, 1 cat, 2 dog"),
        (FIVE, bands(*range(6), most=0), "0 background, 1 car, 2 road, 3 tree, 4 sky, 5 dog"),
        (FIVE, bands(*range(6)), "If 0 has no name (0 has 16.7% of the pixels), put 'background' first. If"),
        (FIVE, bands(*range(6), most=5), "If 0 has no name (0 has 6.7% of the pixels), put 'background' fi"),
        (CAMVID, bands(*range(12)), "'background' first. If 11 has none (11 has 8.3% of the pixels), put"),
        (f"{CAMVID}\nvoid", bands(*range(12), most=0), "0 c0, 1 c1, 2 c2, 3 c3, 4 c4"),
        ("a\nb\nc\n", bands(1, 2, 3), "1 a, 2 b, 3 c"),
        ("a\nb\nc\n", bands(1, 2), "no mask has a, and 0.0% of the pixels are 0: it is not clear"),
        ("a\nb\nc\n", bands(0, 1, most=0), "no mask has c, and 90.9% of the pixels are 0"),
        ("road\n", bands(0, 1), "0 background, 1 road"),
        ("road\n", bands(0, 255), "0 background, 255 road"),
        ("road\n", bands(1, 2), "Give every name its number in the table, such as '0 road'."),
        ("1 background\n2 dog\n", bands(0, 1, 2, most=0), "Give 0 a line '0 NAME'."),
        (None, bands(0, 1, 255, most=255), "mean ignored: no other number has as many pixels."),
        (None, bands(0, 128, 192, 255), "192 is large, too."),
        ("a\nb", bands(*[0] * 9, 1, *[255] * 6), "numbers other than 0 have less than a fifth of that."),
        ("0 a\n128 b\n192 c", bands(0, 128, 192, 255), "with a line '255 void' if it means ignored."),
        ("_background_\ncat\ndog\n", in_palette(bands(0, 1, 255, most=255), SHADES), "_background_, 1 cat"),
        (None, SHADES[bands(0, 1, 2, 255)], "#000000, #008000, #800000"),
        ("green 0 128 0\nred 128 0 0\n", SHADES[bands(0, 1, 2, most=0)], "a line 'background 0 0"),
        ("black 0 0 0\nred 128 0 0\n", SHADES[bands(0, 1)] | np.uint8(0), "black, red"),
        ("black 0 0 0\n", np.dstack([bands(0, 255)] + [bands(0, 254)] * 2), "without a class: #fffefe (50"),
        (ONE_COLOUR, SHADES[bands(0, 1)] * 2, "colour twice: a, b."),
        ('{"labels": {"background": 0, "liver": 1}, "file_ending": ".png"}', bands(0, 1), "0 background, 1"),
    ],
)  # fmt: skip
def test_the_first_meaning_that_explains_all_pixels_counts(table, mask, expected, tmp_path):
    write(tmp_path, [mask])
    if table:
        (tmp_path / "masks/classes.txt").write_text(table)  # beside the masks, or in their folder
    if not (said := error_of(read, [tmp_path], 256)):
        classes = read([tmp_path], 256)["train"].classes
        said = ", ".join(f"{c.get('label', '')} {c['name']}".strip() for c in classes)
    assert expected in said


def test_colours_where_training_masks_have_numbers_and_a_split_without_pixels(tmp_path):
    masks = {"a": GRID, "c": COLOURS[GRID], "i": GRID * 0 + 3}
    folders = {name: write(tmp_path / name, [mask]) for name, mask in masks.items()}
    (folders["a"] / "classes.txt").write_text("a\nb\nc\nvoid\n")
    wrong = {"c": "has colours, but the training masks have numbers", "i": "images for test is ignored"}
    for other, said in wrong.items():
        assert said in error_of(read, [folders["a"]], 256, others={"test": [folders[other]]})
    grey = Image.fromarray(GRID * 100)
    grey.save(folders["a"] / "masks/0.gif")
    (folders["a"] / "masks/0.png").unlink()
    (folders["a"] / "classes.txt").unlink()
    assert [c["name"] for c in read([folders["a"]], 256)["train"].classes] == ["0", "100", "200"]


# Images.


def png(path: Path, values: np.ndarray) -> None:
    """A PNG of 16 bits, grey (H, W), grey with alpha (H, W, 2) or colour (H, W, 3)."""
    values = values.reshape(*values.shape[:2], -1).astype(">u2")
    kind = {1: 0, 2: 4, 3: 2}[values.shape[-1]].to_bytes(1, "big")
    size = b"".join(n.to_bytes(4, "big") for n in values.shape[1::-1])
    parts = {b"IHDR": size + b"\x10" + kind + b"\0\0\0", b"IEND": b""}
    parts[b"IDAT"] = zlib.compress(b"".join(b"\0" + row.tobytes() for row in values))
    made = [name + parts[name] for name in (b"IHDR", b"IDAT", b"IEND")]
    chunks = [(len(c) - 4).to_bytes(4, "big") + c + zlib.crc32(c).to_bytes(4, "big") for c in made]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


DEEP = (random.random((120, 160)) * 700).astype(int) + 20_000  # of 65,536 values, as of a thermal camera
DEEP[GRID == 2] += 3000


def deep_folder(root: Path, values: list[np.ndarray], kind: str = "png") -> Path:
    write(root, [GRID] * len(values))
    for number, each in enumerate(values):
        (root / f"images/{number}.png").unlink()
        path = root / f"images/{number}.{kind}"
        png(path, each) if kind == "png" else Image.fromarray(each).save(path)
    return root


@pytest.mark.parametrize("colour", [False, True])
def test_the_range_is_that_of_the_classes_without_hot_pixels(colour, tmp_path):
    hot = DEEP.copy()
    hot[5, 5] = 65535
    pictures = [np.stack([each] * 3, -1) if colour else each for each in [DEEP] * 3 + [hot]]
    records = read([deep_folder(tmp_path, pictures)], 256)
    low, high = records["train"].ends
    classes = [[each[n == GRID] for each in pictures] for n in range(3)]
    ends = [np.percentile(np.concatenate(each), (0.5, 99.5)) for each in classes]
    assert low == pytest.approx(min(end[0] for end in ends), abs=3)
    assert high == pytest.approx(max(end[1] for end in ends), abs=3)
    expected = ((DEEP - low) * 255 / (high - low)).round().clip(0, 255)
    assert np.array_equal(records["train"].pairs[0][0], np.dstack([expected] * 3))
    assert read([tmp_path], 256, ends=[19_000, 25_000])["train"].ends == [19_000, 25_000]


def test_one_hot_pixel_of_a_small_class_is_outside_the_range():
    assert range_of([np.array([[*range(100), 65535]])], [np.zeros((1, 101), np.uint8)]) == [1, 99]


FLOATS = (DEEP / 65536).astype(np.float32)


@pytest.mark.parametrize(
    ("pictures", "options", "said"),
    [
        ([DEEP] * 2, {"ends": (0, 65535)}, "2 of 2 images keep too few levels: "),
        ([np.dstack([DEEP, DEEP])], {}, "0.png has 16 bits in the mode LA;16B: save it as PNG or TIFF"),
        ([DEEP.astype(np.int32) - 21_000] * 2, {}, ""),  # negative values
        ([np.where(DEEP > 0, np.nan, FLOATS).astype(np.float32)], {}, "0.tif has values that are infinite"),
    ],
)
def test_levels_that_images_keep(pictures, options, said, tmp_path):
    kind = "png" if pictures[0].dtype == DEEP.dtype else "tif"
    folder = deep_folder(tmp_path, pictures, kind)
    assert said in error_of(read, [folder], 256, **options)
    assert said or read([folder], 256)["train"].ends[0] < 0


def test_images_of_two_depths_are_named(tmp_path):
    deep, flat = [deep_folder(tmp_path / "deep", [DEEP])], [write(tmp_path / "flat", [GRID])]
    for data, others, ends, said in (
        (deep, {"test": flat}, None, r"flat/images/0\.png has 8 bits, but .*deep/images/0\.png has more"),
        (flat, {"test": deep}, None, r"deep/images/0\.png has more than 8 bits, but .*flat/images/0\.png"),
        (flat, {}, (2, 9), r"--range is for images of more than 8 bits, but .*flat/images/0\.png has 8"),
    ):
        assert re.search(said, error_of(read, data, 256, others=others, ends=ends))


@pytest.mark.parametrize("kind", ["tif", "gif", "png", "webp"])
def test_images_have_one_page(kind, tmp_path):
    path = write(tmp_path, [GRID]) / "images/0.png"
    path.unlink()
    first = Image.new("RGB", (160, 120))
    second = Image.new("RGB", (160, 120), "red")
    first.save(path.with_suffix(f".{kind}"), save_all=True, append_images=[second])
    assert f"0.{kind} must have one page, but has 2" in error_of(read, [tmp_path], 256)
    if kind == "tif":  # a smaller page is a preview
        first.save(path.with_suffix(".tif"), save_all=True, append_images=[Image.new("RGB", (16, 12))])
        assert len(read([tmp_path], 256)["train"].pairs) == 1


def test_a_mask_that_exif_data_turn_is_refused(tmp_path):
    with Image.open(write(tmp_path, [GRID]) / "masks/0.png") as mask:
        turned = mask.getexif()
        turned[0x0112] = 3
        mask.save(tmp_path / "masks/0.png", exif=turned)
    said = error_of(read, [tmp_path], 256)
    assert "masks/0.png is turned by its EXIF data: save it upright" in said


@pytest.mark.parametrize(("orientation", "side", "expected"), [(3, 120, 1), (6, 160, 1), (1, 160, 0)])
def test_turned_images_are_counted_where_the_size_cannot_tell(orientation, side, expected, tmp_path):
    write(tmp_path, [np.kron([[0, 1]], np.ones((side, 80))).astype(np.uint8)])
    turned = Image.Exif()
    turned[0x0112] = orientation
    Image.new("RGB", (160, side)).save(tmp_path / "images/0.png", exif=turned)
    line = "1 of 1 images are turned by their EXIF data; masks must be upright: look at data.png."
    assert read([tmp_path], 256)["train"].lines().count(line) == expected


def test_programs_read_images_by_one_function_and_say_what_they_cannot(tmp_path):
    data, run = deep_folder(tmp_path / "d", [DEEP] * 5), tmp_path / "run"
    options = ["--data", data, "--validation", data, "--steps", 1, "--batch", 1, "--output", run]
    (line,) = call("train", *options, "--crop", 20, status=1).stderr.splitlines()
    assert line == "--crop must be a multiple of 8 for this model, but got 20."
    said = call("train", *options).stdout
    assert "Warning: 5 of 5 images for validation are also for training.\n" in said
    model = zoo.from_pretrained(run / "enet")
    ends = model.about.input["range"]
    assert ends == json.loads((run / "metrics.json").read_text())["read"]["train"]["range"]
    picture = read([data], 256)["train"].pairs[0][0]
    assert np.array_equal(read_picture(data / "images/0.png", model), picture)
    with Image.open(data / "images/0.png") as image:
        assert np.array_equal(model.predict(image), model.predict(picture))
    with pytest.raises(ValueError, match=r"'images' must have more than 8 bits, as those of the training"):
        model.predict(Image.fromarray(picture))
    with pytest.raises(ValueError, match=r"from images of more than 8 bits, of which a browser shows 8"):
        Page(model, "m")
    said = call("export.py", run / "enet", tmp_path / "m.mlxfn", "--shape", 1, 32, 32, 3).stdout
    assert "before the normalisation, {:g} to {:g} are 0 to 255, others clipped.".format(*ends) in said
    options += ["--resume", "--steps", 2]
    said = call("train", *options, "--learning-rate", 0.5, status=1).stderr
    assert ". For another rate, start from its model: --model FOLDER --output NEW" in said


def test_label_maps_of_images_with_equal_names_and_an_image_of_few_levels(tmp_path):
    model = randomised(zoo.ENet(2))
    model.save_pretrained(tmp_path / "m")
    for name in ("a.png", "a.tif", "b.png", "x/b.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (16, 16)).save(tmp_path / name)
    png(tmp_path / "deep.png", DEEP // 16)
    names = ("a.png", "a.tif", "b.png", "x/b.png", "deep.png")
    paths = [tmp_path / name for name in names]
    said = call("predict", tmp_path / "m", *paths, "--output", tmp_path / "o/c.png", status=1).stderr
    assert "deep.png keeps " in said
    assert "For its own values, pass --range 1250 1481." in said
    found = {path.name for path in (tmp_path / "o").iterdir()}
    assert found == {"c.png", "c-a.png.png", "c-a.tif.png", f"c-{tmp_path.name}-b.png.png", "c-x-b.png.png"}
    call("predict", tmp_path / "m", paths[-1], "--output", tmp_path / "o/c.png", "--range", 1250, 1481)


def test_models_without_a_range_take_images_as_before(tmp_path):
    model = zoo.ENet(2)
    colour = random.integers(0, 65536, (120, 160, 3))
    png(tmp_path / "grey.png", colour[..., 0])
    png(tmp_path / "colour.png", colour)
    assert np.array_equal(read_picture(tmp_path / "colour.png", model), colour >> 8)
    Image.fromarray(FLOATS * 200).save(tmp_path / "f.tif")
    with pytest.raises(ValueError, match=r"f\.tif: the values of the image must be 0 to 1 .* Divide by 255"):
        read_picture(tmp_path / "f.tif", model)
    with pytest.raises(ValueError, match="divide by 255"):
        model.predict(np.full((8, 8, 3), 200.0))
    model.about.input["white_level"] = 65536
    expected = (np.array(Image.open(tmp_path / "grey.png"), np.float32) * (255 / 65536)).round()
    assert np.array_equal(read_picture(tmp_path / "grey.png", model)[..., 0], expected)
    model.about.input["white_level"] = 4096
    with pytest.raises(ValueError, match=r"the values of the image must be 0 to 4096 but are"):
        read_picture(tmp_path / "grey.png", model)


@pytest.mark.parametrize(
    ("names", "expected"),
    [*{"a Background": 1, "_background_ a": 0, "0 1": 0, "sky 0": None, "sky x": None, "1 0": None}.items()],
)
def test_at_most_one_class_is_not_drawn(names, expected):
    classes = [{"name": name, "colour": [9, 9, 9], "label": n} for n, name in enumerate(names.split())]
    assert not_drawn(classes) == expected
    drawn = overlaid(np.full((1, 2, 3), 200), np.array([[0, 1]]), classes)[0, :, 0] < 200
    assert [n for n in (0, 1) if not drawn[n]] == ([] if expected is None else [expected])
