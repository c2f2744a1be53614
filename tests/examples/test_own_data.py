"""Folders of own data: splits, smoothed masks, the meaning of values, images of more than 8 bits."""

import io
import json
from pathlib import Path

import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from helpers.masks import BLOCKS, COLOURS, encoded, error_of, in_palette, pairs, png, put, write
from helpers.programs import call
from helpers.small_models import randomised
from mlx_unpool_zoo.classes import not_drawn
from mlx_unpool_zoo.data import read
from mlx_unpool_zoo.data.layouts import find
from mlx_unpool_zoo.data.pictures import range_of, read_picture
from mlx_unpool_zoo.drawing import overlaid
from PIL import Image, ImageFilter

# Layouts: files of each split, with {s} for the folder of the split and {k} for two names.

PAIRS = {"images/{s}/{k}.jpg": "masks/{s}/{k}.png", "{s}/images/{k}.jpg": "{s}/masks/{k}.png"}
PAIRS |= {"img_dir/{s}/{k}.jpg": "ann_dir/{s}/{k}.png", "Images/{s}/{k}.jpg": "Annotations/{s}/{k}.png"}
PAIRS |= {"{s}/{k}.jpg": "{s}/{k}_mask.png", "{s}/{k}.png": "{s}/{k}_mask.png"}
PAIRS |= {"{s}/{k}.JPG": "{s}/{k}.png"}
PAIRS |= {"{s}_images/{k}.jpg": "{s}_masks/{k}.png", "images/{s}/{k}.png": "masks/{k}.png"}
PAIRS |= {"{s}/{k}.PNG": "{s}annot/{k}.png", "{s}/{k}.tif": "{s}_labels/{k}_L.png"}
PAIRS |= {"leftImg8bit/{s}/b/{k}_leftImg8bit.png": "gtFine/{s}/b/{k}_gtFine_labelIds.png"}
SPLITS = ["train val test", "training validation testing", "Train Valid TEST", "train2017 eval2017 test2017"]
SPLITS += ["training dev test"]


def touch(root: Path, *patterns: str, splits: str = "") -> Path:
    names = [p.format(s=s, k=f"{k}{s}") for p in patterns for s in splits.split() or [""] for k in "ab"]
    return put(root, dict.fromkeys(names, ""))


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
        ((), "", "1.png 1_mask.png 10.png 10_mask.png", {"train": 2}),
        (("{k}.png", "{k}_mask.png"), "", "c.png", "names such as a.png and a_mask.png."),
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
    for name in ("m1", "m11"):
        put(tmp_path, {f"images/{name}.jpg": "", mask.format(name): "0 .1 .1 .5 .1 .5 .5"})
    put(tmp_path, {"data.yaml": "names: [a]"})
    put(tmp_path / folder, ({"test.txt": "m"} if "masks" in mask else {}) | lists)  # without a mask
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


def jpeg(values: np.ndarray) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(encoded(values, "JPEG", quality=85))))


def blurred(values: np.ndarray, radius: float = 1) -> np.ndarray:
    return np.array(Image.fromarray(values).filter(ImageFilter.GaussianBlur(radius)))


def resized(values: np.ndarray, how: Image.Resampling = Image.Resampling.BILINEAR) -> np.ndarray:
    return np.array(Image.fromarray(values).resize((101, 77), how))


BORDERED = np.where(blurred(GRID * 50, 1) == GRID * 50, GRID, 255).astype(np.uint8)
BINARIES = [(how(BINARY), True) for how in (jpeg, blurred, resized)]
BINARIES += [(np.dstack([how(BINARY)] * 3), True) for how in (jpeg, blurred, resized)]
PHOTOGRAPH = np.array(Image.open(Path(zoo.__file__).parent / "portrait.jpg").resize((64, 64)))
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
    table = "\n".join(f"{25 * n} c{n}" for n in range(10)) if mask is RIGHT[7] else ""  # it lists every value
    assert len(read([write(tmp_path, [mask] * 2, table=table)], 256)["train"].pairs) == 2


# What values mean.


def bands(*numbers: int, most: int | None = None) -> np.ndarray:
    row = np.repeat(np.array(numbers, np.uint8), [40 if n == most else 4 for n in numbers])
    return row[None].repeat(8, 0)


SHADES = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0], *[[0, 0, 0]] * 252, [224, 224, 192]], np.uint8)
CAMVID = "\n".join(f"c{n}" for n in range(11))
TWICE = "0 rock 0 0 0\n1 sea 0 160 255\n2 fire 255 80 0\n"
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
        (f"{TWICE}3 sun 255 80 0", COLOURS[GRID], "gives fire and sun a colour that is in it twice."),
        (f"{TWICE}3 sun 255 80 0", GRID, "0 rock, 1 sea, 2 fire, 3 sun"),
        (ONE_COLOUR, SHADES[bands(0, 1)] * 2, "colour twice: a, b."),
        ('{"labels": {"background": 0, "liver": 1}, "file_ending": ".png"}', bands(0, 1), "0 background, 1"),
    ],
)  # fmt: skip
def test_the_first_meaning_that_explains_all_pixels_counts(table, mask, expected, tmp_path):
    put(write(tmp_path, [mask]), {"masks/classes.txt": table} if table else {})  # or beside the folder
    if not (said := error_of(read, [tmp_path], 256)):
        classes = read([tmp_path], 256)["train"].classes
        said = ", ".join(f"{c.get('label', '')} {c['name']}".strip() for c in classes)
    assert expected in said


def test_grey_gifs_have_their_levels(tmp_path):
    write(tmp_path, [GRID * 100], kind="gif")
    assert [c["name"] for c in read([tmp_path], 256)["train"].classes] == ["0", "100", "200"]


@pytest.mark.parametrize("bits", [2, 4])
def test_grey_masks_of_few_bits_have_their_numbers(bits, tmp_path):
    data = read([put(tmp_path, pairs([GRID]) | {"masks/0.png": png(GRID, bits)})], 256)["train"]
    assert [entry["name"] for entry in data.classes] == ["0", "1", "2"]
    assert np.array_equal(data.pairs[0][1], GRID)
    assert data.pairs[0][1].dtype == np.uint8  # the masks of all pictures are in memory


# Images.


DEEP = (random.random((120, 160)) * 700).astype(int) + 20_000  # of 65,536 values, as of a thermal camera
DEEP[GRID == 2] += 3000


def deep_folder(root: Path, values: list[np.ndarray]) -> Path:
    images = {f"images/{number}.png": png(each) for number, each in enumerate(values)}
    return put(root, pairs([GRID] * len(values)) | images)


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


def test_negative_values_and_a_preview_after_the_first_page(tmp_path):
    preview = {"save_all": True, "append_images": [Image.new("I", (16, 12))]}
    write(tmp_path, [GRID])
    put(tmp_path, {"images/0.png": encoded(DEEP.astype(np.int32) - 21_000, "TIFF", **preview)})
    assert read([tmp_path], 256)["train"].ends[0] < 0


def turned_by(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


RGB, TRAIN, TEST = COLOURS[GRID], "train/images train/masks", "test/images test/masks"
PLAIN, MANY = pairs([GRID]), np.kron(PHOTOGRAPH, np.ones((3, 3, 1), np.uint8)) // 2 + 40
BORDER = in_palette(np.where(np.eye(120, 160) > 0, 255, GRID).astype(np.uint8))
CLEAR = np.dstack([RGB * 0, np.where(GRID, 255, 0).astype(np.uint8)])
INFINITE = np.where(DEEP > 0, np.nan, 0).astype(np.float32)
PAGES = {"save_all": True, "append_images": [Image.new("RGB", (160, 120), "red")]}
ON_SIDE = {"images/0.png": encoded(np.rot90(RGB), "PNG", exif=turned_by(6)), "masks/0.png": np.rot90(GRID)}
OF_MASK = [
    (CLEAR, "0.png seems to have its mask in its transparency: save the alpha channel instead"),
    (BINARY * 0, "all masks are black: every pixel of the masks is 0"),
    (encoded(GRID, "JPEG"), "0.png must be PNG: JPEG with loss changes the numbers of classes"),
    (encoded(RGB, "TIFF", compression="jpeg"), "0.png must be PNG: TIFF with loss changes"),
    (encoded(RGB, "TIFF", **PAGES), "masks/0.png must have one page, but has 2."),
    (encoded(GRID, "PNG", exif=turned_by(3)), "masks/0.png is turned by its EXIF data: save it upright"),
    (encoded(GRID.astype(np.float32) / 2, "TIFF"), "0.png must have whole numbers or colours (RGB)"),
    (encoded(GRID.astype(np.int32) * 40000, "TIFF"), "numbers from 0 to 65535, but have 80000."),
    (encoded(GRID, "PNG")[:-30], "masks/0.png cannot be read as an image: "),
    (
        GRID.T,
        "must have the size of its image (rotated as in its EXIF data), (160, 120), but has (120, 160).",
    ),
]
OF_IMAGE = [
    (b"GIF", "images/0.png cannot be read as an image: cannot identify"),
    *((encoded(RGB, k, **PAGES), "0.png must have one page") for k in ("TIFF", "GIF", "PNG", "WEBP")),
    (png(np.dstack([DEEP, DEEP])), "0.png has 16 bits in the mode LA;16B: save it as PNG or TIFF"),
    (encoded(INFINITE, "TIFF"), "0.png has values that are infinite or NaN"),
]
OF_MASKS = [
    (pairs([PHOTOGRAPH]), "0.png seems to be a photograph, or a mask drawn over one or saved as"),
    (pairs([Image.fromarray(PHOTOGRAPH).convert("L")]), "0.png seems to be a photograph"),
    (pairs([MANY]), "0.png has 2933 values. It seems"),
    (pairs([np.dstack([PHOTOGRAPH, BINARY[:64, :64]])]), "save the alpha channel instead"),
    (pairs([in_palette(GRID), in_palette(GRID, COLOURS[::-1])]), "number 0 has several colours"),
    (pairs([BORDER], table="255 80 0 fire\n0 160 255 sea\n0 0 0 rock\n"), "a number has another colour in"),
    (pairs([GRID % 2, GRID // 2 * 255], table="sky\nroad"), "1.png, for example, has only 0 beside it"),
    (pairs([GRID], table="0 x 1 1 1\n1 y 2 2 2\n"), "0.png has values without a class: 2 (29.2% of the"),
    (pairs([GRID], TRAIN) | pairs([GRID + 5], TEST), "without a class: 5, 6, 7. Classes: 0, 1, 2."),
    (pairs([GRID], TRAIN) | pairs([RGB], TEST), "has colours, but the training masks have numbers"),
    (pairs([GRID], TRAIN, table="a\nb\nvoid") | pairs([GRID * 0 + 2], TEST), "for test is ignored"),
    (PLAIN | ON_SIDE, "but has (120, 160) as it is stored; save it upright."),
    (pairs([GRID] * 2) | {"images/0.png": png(DEEP)}, "images/1.png has 8 bits, but images/0.png has more"),
    (pairs([GRID] * 2) | {"images/1.png": png(DEEP)}, "1.png has more than 8 bits, but images/0.png has"),
]
WRONG = [
    *((PLAIN | {"masks/0.png": content}, {}, said) for content, said in OF_MASK),
    *((PLAIN | {"images/0.png": content}, {}, said) for content, said in OF_IMAGE),
    *((files, {}, said) for files, said in OF_MASKS),
    (pairs([RGB]), {"threshold": True}, "--threshold is for binary masks, but masks/0.png has colours"),
    (pairs([np.array([0, 128, 255], np.uint8)[GRID]]), {"threshold": True}, "of the pixels have 128."),
    (
        pairs([GRID] * 4),
        {"divided": True},
        "--validation is needed for fewer than 5 images, but there are 4.",
    ),
    (PLAIN | {"images/0.png": png(DEEP)}, {"ends": (0, 65535)}, "1 of 1 images keep too few levels: "),
    (PLAIN, {"ends": (2, 9)}, "--range is for images of more than 8 bits, but images/0.png has 8"),
]


@pytest.mark.parametrize(("files", "options", "said"), WRONG)
def test_what_is_wrong_with_files_is_named(files, options, said, tmp_path):
    found = error_of(read, [put(tmp_path, files)], 256, **options)
    assert said in found.replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(("orientation", "side", "expected"), [(3, 120, 1), (6, 160, 1), (1, 160, 0)])
def test_turned_images_are_counted_where_the_size_cannot_tell(orientation, side, expected, tmp_path):
    write(tmp_path, [np.kron([[0, 1]], np.ones((side, 80))).astype(np.uint8)])
    Image.new("RGB", (160, side)).save(tmp_path / "images/0.png", exif=turned_by(orientation))
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
    said = call("export.py", run / "enet", tmp_path / "m.mlxfn", "--shape", 1, 32, 32, 3).stdout
    assert "before the normalisation, {:g} to {:g} are 0 to 255, others clipped.".format(*ends) in said
    options += ["--resume", "--steps", 2]
    said = call("train", *options, "--learning-rate", 0.5, status=1).stderr
    assert ". For another rate, start from its model: --model FOLDER --output NEW" in said


def test_label_maps_of_images_with_equal_names_and_an_image_of_few_levels(tmp_path):
    model = randomised(zoo.ENet(2))
    model.save_pretrained(tmp_path / "m")
    files = dict.fromkeys(("a.png", "a.tif", "b.png", "x/b.png"), COLOURS[BLOCKS]) | {
        "deep.png": png(DEEP // 16)
    }
    paths = [put(tmp_path, files) / name for name in files]
    said = call("predict", tmp_path / "m", *paths, "--output", tmp_path / "o/c.png", status=1).stderr
    assert "deep.png keeps " in said
    assert "For its own values, pass --range 1250 1481." in said
    found = {path.name for path in (tmp_path / "o").iterdir()}
    assert found == {"c.png", "c-a.png.png", "c-a.tif.png", f"c-{tmp_path.name}-b.png.png", "c-x-b.png.png"}
    call("predict", tmp_path / "m", paths[-1], "--output", tmp_path / "o/c.png", "--range", 1250, 1481)


def test_models_without_a_range_take_images_as_before(tmp_path):
    model = zoo.ENet(2)
    colour = random.integers(0, 65536, (120, 160, 3))
    put(tmp_path, {"grey.png": png(colour[..., 0]), "colour.png": png(colour)})
    assert np.array_equal(read_picture(tmp_path / "colour.png", model), colour >> 8)
    Image.fromarray((DEEP / 256).astype(np.float32)).save(tmp_path / "f.tif")
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
