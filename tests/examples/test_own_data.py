"""Folders of own data: splits, pairs of images and masks, images of more than 8 bits, programs."""

import json
import os
from pathlib import Path

import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from helpers.masks import BLOCKS, COLOURS, encoded, error_of, pairs, png, put, write
from helpers.programs import call
from helpers.small_models import randomised
from mlx_unpool_zoo.classes import not_drawn
from mlx_unpool_zoo.commands import train
from mlx_unpool_zoo.data import read
from mlx_unpool_zoo.data.folders import find
from mlx_unpool_zoo.data.pictures import range_of, read_picture
from mlx_unpool_zoo.drawing import overlaid
from PIL import Image

# Folders. The files are empty: only names count.

PLAIN = "images/a.jpg images/b.png masks/a.png masks/b.tif"
SPLITS = " ".join(
    f"{split}/images/{split}.jpg {split}/masks/{split}.bmp" for split in ("train", "val", "test")
)


def touch(root: Path, names: str) -> Path:
    return put(root, dict.fromkeys(names.split(), ""))


def names_of(root: Path, *folders: str, ending: str = "", **others: str) -> dict[str, str]:
    """The names of the images and masks of each split."""
    given = {split: [root / name for name in names.split()] for split, names in others.items()}
    found = find([root / name for name in folders or ("",)], given, ending)
    return {
        split: " ".join(path.name for pair in each for path in pair)
        for split, each in found.items()
    }


@pytest.mark.parametrize(
    ("files", "options", "expected"),
    [
        (PLAIN, {}, {"train": "a.jpg a.png b.png b.tif"}),
        (PLAIN.replace("images", "Images"), {}, {"train": "a.jpg a.png b.png b.tif"}),
        (SPLITS, {}, {split: f"{name}.jpg {name}.bmp" for split, name in zip(
            ("train", "validation", "test"), ("train", "val", "test"))}),
        ("images/license_a.jpg masks/license_a.png", {}, {"train": "license_a.jpg license_a.png"}),
        (f"{PLAIN} .DS_Store README.txt LICENSE masks/Thumbs.db images/.a.jpg a.md classes.txt", {},
         {"train": "a.jpg a.png b.png b.tif"}),
        ("images/e\u0301.jpg masks/\u00e9.png", {}, {"train": "e\u0301.jpg \u00e9.png"}),
        ("a.jpg a_m.png", {"ending": "_m"}, {"train": "a.jpg a_m.png"}),
        ("images/a.jpg masks/a_m.png", {"ending": "_m"}, {"train": "a.jpg a_m.png"}),
        (f"{PLAIN} x/1.jpg y/1.png", {"folders": ("images", "masks"), "test": "x y"},
         {"train": "a.jpg a.png b.png b.tif", "test": "1.jpg 1.png"}),
    ],
)  # fmt: skip
def test_images_and_masks_are_found_by_their_names(files, options, expected, tmp_path):
    assert names_of(touch(tmp_path, files), *options.pop("folders", ()), **options) == expected


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("train.txt", "If it lists the images of a split, move these and their masks to folders"),
        ("labels.txt", "If a text lists classes, write them into classes.txt, with a line VALUE "),
        ("a.json", "contains a.json. Polygons and exports of other tools are not read: https://"),
        (
            "1st_manual/a.gif",
            "images and masks, but contains 1st_manual. If it is not for this training, ",
        ),
        ("b.zip", "contains b.zip. Move images to images and masks to masks, in a f"),
        ("c.jpg", "contains c.jpg. Move images to images and masks to masks, in a f"),
        ("runs/c.jpg", "may contain only images and masks, but contains runs. "),
        (
            "images/runs/metrics.json",
            "images may contain only images, but contains runs. If these are",
        ),
        ("images/notes.doc", "contains notes.doc. Move images to images and masks to masks, in a"),
        (
            "masks/c.jpg",
            "may contain only masks, but contains c.jpg. Masks must be PNG, TIFF or BMP.",
        ),
        ("images/c\x07.jpg", "{r}/images: rename 'c\\x07.jpg', in UTF-8, in one line."),
        (
            "images/c.jpg",
            "1 of 3 images have no mask: {r}/images/c.jpg needs {r}/masks/c.png; the near",
        ),
        (
            "masks/c.png",
            "1 of 3 masks have no image: {r}/masks/c.png needs an image such as {r}/images",
        ),
        ("masks/a.tif", "{r}/masks/a.png and a.tif have the same name: rename or remove one."),
        ("Images/c.jpg", "{r}/Images and images have the same name: rename one."),
        (SPLITS, "may contain only train, val and test, but contains images, masks. Call a folder"),
        (
            SPLITS.replace("val/", "valid/"),
            "contains images, masks, valid. Call a folder for valid",
        ),
    ],
)
def test_whatever_is_not_used_in_a_folder_is_named(more, said, tmp_path):
    assert said.format(r=tmp_path) in error_of(find, [touch(tmp_path, f"{PLAIN} {more}")], {})


@pytest.mark.parametrize(
    "line", ["a 1 1 1", "./images/a.jpg;1", "# split\n/data/a.jpg masks/a.png"]
)
def test_a_list_of_images_beside_two_given_folders_is_named(line, tmp_path):
    folders = [touch(tmp_path, PLAIN) / "images", tmp_path / "masks"]
    (tmp_path / "test.txt").write_text("b2\n0 sky\n")
    find(folders, {})
    (tmp_path / "test.txt").write_text(line)
    assert error_of(find, folders, {}).startswith(f"{tmp_path / 'test.txt'} lists some of the i")
    other = touch(tmp_path / "other", PLAIN)
    assert find(folders, {"test": [other / "images", other / "masks"]})["train"]


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        (
            "aero1_mask.png aero2_mask.png",
            "the nearest name is aero1_mask.png. Pass --mask-ending=_mask.",
        ),
        ("aero1-m.png aero2-m.png", "the nearest name is aero1-m.png. Pass --mask-ending=-m."),
        ("aero1.jpg.png aero2.jpg.png", "Pass --mask-ending=.jpg."),
        (
            "Aero1.png Aero2.png",
            "the nearest name is Aero1.png. Rename masks to the names of their images",
        ),
        (
            "m_aero1.png m_aero2.png",
            "the nearest name is m_aero1.png. Rename masks to the names of ",
        ),
        (
            "aero2.png",
            "the nearest name is aero2.png. Rename masks to the names of their images, in upper",
        ),
        (".x", "masks has no masks."),
    ],
)
def test_names_that_do_not_pair_are_named_with_what_is_there(masks, said, tmp_path):
    names = [f"images/aero{number}.jpg" for number in (1, 2)]
    names += [f"masks/{name}" for name in masks.split()]
    assert said in error_of(find, [touch(tmp_path, " ".join(names))], {})


def test_links_that_lead_nowhere_and_fifos_are_named(tmp_path):
    touch(tmp_path, PLAIN)
    (tmp_path / "images/c.png").symlink_to("nothing")
    assert "contains c.png. It is a broken link, or neither" in error_of(find, [tmp_path], {})
    (tmp_path / "images/c.png").unlink()
    os.mkfifo(tmp_path / "masks/c.png")
    assert "contains c.png. It is a broken link, or neither" in error_of(find, [tmp_path], {})


@pytest.mark.parametrize(
    ("files", "folders", "others", "said"),
    [
        ("x/a.jpg y/a.png", "", {}, "must contain the folders images and masks, or train (and"),
        ("images/x masks/x", "no", {}, "{r}/no is not a folder."),
        (PLAIN, "images masks masks", {}, "pass one folder or two (images and masks), but got "),
        (SPLITS, "", {"validation": ""}, "{r}/val and --validation are both for validation"),
        (SPLITS, "train", {"test": ""}, "--test must be the folder of one split, unlike "),
        (PLAIN, "images images", {}, "images has images and masks: pass --mask-ending, too."),
        ("images/.x masks/.x", "", {}, "images has no images."),
    ],
)  # fmt: skip
def test_folders_that_are_not_clear(files, folders, others, said, tmp_path):
    touch(tmp_path, files)
    given = {split: [tmp_path / name] for split, name in others.items()}
    found = error_of(find, [tmp_path / name for name in folders.split() or [""]], given)
    assert said.format(r=tmp_path) in found


def test_the_same_picture_in_two_splits_is_named(tmp_path):
    """Also in a file of another name and format, and through a link."""
    pictures = {f"train/images/{n}.png": COLOURS[np.roll(BLOCKS, n)] for n in range(3)}
    put(tmp_path, pairs([BLOCKS] * 3, "train/images train/masks") | pictures)
    (tmp_path / "val").symlink_to("train")
    assert "3 of 3 images for validation are also for train: " in error_of(read, [tmp_path], 256)
    (tmp_path / "val").unlink()
    copy = {"val/images/x.bmp": pictures["train/images/1.png"], "val/masks/x.png": BLOCKS}
    said = error_of(read, [put(tmp_path, copy)], 256)
    both = f"{tmp_path}/val/images/x.bmp and {tmp_path}/train/images/1.png"
    assert f"{both} are the same picture, for example. Remove one of them, or put both" in said


def test_pictures_without_content_may_be_in_two_splits(tmp_path):
    files = pairs([BLOCKS] * 5) | {f"images/{n}.png": BLOCKS * 0 for n in range(5)}
    assert read([put(tmp_path, files)], 256, divided=True)["validation"].notes


def test_another_class_file_in_a_folder_is_named(tmp_path):
    files = pairs([BLOCKS], "train/images train/masks") | pairs([BLOCKS], "val/images val/masks")
    put(tmp_path, files | {"val/classes.txt": "0 sky\n", "val/masks/classes.txt": "0 sky\n"})
    said = "contains classes.txt. The class file is another one, or classes.txt in the "
    assert said in error_of(read, [tmp_path], 256)
    assert said in error_of(read, [tmp_path], 256, tmp_path / "classes.txt")
    (tmp_path / "val/masks/classes.txt").unlink()
    (tmp_path / "val/classes.txt").write_bytes((tmp_path / "classes.txt").read_bytes())
    assert [*read([tmp_path], 256)] == ["train", "validation"]
    (tmp_path / "val/classes.txt").unlink()
    (tmp_path / "classes.txt").rename(tmp_path / "train/names.txt")
    put(tmp_path, {"classes.txt": "0 only one\n"})
    assert [*read([tmp_path], 256, tmp_path / "train/names.txt")] == ["train", "validation"]
    two = [tmp_path / "train/images", tmp_path / "train/masks"]
    put(tmp_path, {"train/classes.txt": "0 sky\n1 sea\n"})
    with pytest.raises(
        ValueError, match=f"folder above, pass --classes {tmp_path}/train/classes.txt"
    ):
        read(two, 256)


# Images.

random = np.random.default_rng(0)
GRID = np.kron(random.integers(0, 3, (6, 8)), np.ones((20, 20))).astype(np.uint8)
DEEP = (random.random((120, 160)) * 700).astype(
    int
) + 20_000  # of 65,536 values, as of a thermal camera
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


RGB = COLOURS[GRID]
PAGES = {"save_all": True, "append_images": [Image.new("RGB", (160, 120), "red")]}
INFINITE = np.where(DEEP > 0, np.nan, 0).astype(np.float32)
INVERTED = encoded(DEEP.astype(np.uint16), "TIFF", tiffinfo={262: 0})
ON_SIDE = {
    "images/0.png": encoded(np.rot90(RGB), "PNG", exif=turned_by(6)),
    "masks/0.png": np.rot90(GRID),
}
WRONG = [
    ({"images/0.png": b"GIF"}, {}, "images/0.png cannot be read as an image: cannot identify"),
    *(
        ({"images/0.png": encoded(RGB, kind, **PAGES)}, {}, "0.png must have one page")
        for kind in ("TIFF", "GIF")
    ),
    (
        {"images/0.png": png(np.dstack([DEEP, DEEP]))},
        {},
        "0.png has 16 bits in the mode LA;16B: save it as",
    ),
    ({"images/0.png": encoded(INFINITE, "TIFF")}, {}, "0.png has values that are infinite or NaN"),
    (
        {"images/0.png": INVERTED},
        {},
        "0.png is a TIFF with WhiteIsZero: save it with BlackIsZero, or as PNG.",
    ),
    (
        {"masks/0.png": GRID.T},
        {},
        "must have the size of its image (rotated as in its EXIF data), (160, 120), but",
    ),
    (ON_SIDE, {}, "but has (120, 160) as it is stored; save it upright."),
    (
        {"images/0.png": png(DEEP)},
        {},
        "images/1.png has 8 bits, but images/0.png has more than 8 bits",
    ),
    (
        {"images/1.png": png(DEEP)},
        {},
        "images/1.png has more than 8 bits, but images/0.png has 8 bits",
    ),
    (
        {},
        {"divided": True},
        "a folder val, or --validation, is needed for fewer than 5 images, but",
    ),
    (
        {f"images/{n}.png": png(DEEP) for n in (0, 1)},
        {"ends": (0, 65535)},
        "2 of 2 images keep too few levels: ",
    ),
    ({}, {"ends": (2, 9)}, "--range is for images of more than 8 bits, but images/0.png has 8"),
]


@pytest.mark.parametrize(("files", "options", "said"), WRONG)
def test_what_is_wrong_with_images_is_named(files, options, said, tmp_path):
    found = error_of(read, [put(tmp_path, pairs([GRID] * 2) | files)], 256, **options)
    assert said in found.replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("orientation", "side", "expected"), [(3, 120, 1), (6, 160, 1), (1, 160, 0)]
)
def test_turned_images_are_counted(orientation, side, expected, tmp_path):
    write(tmp_path, [np.kron([[0, 1]], np.ones((side, 80))).astype(np.uint8)])
    Image.new("RGB", (160, side)).save(tmp_path / "images/0.png", exif=turned_by(orientation))
    line = "1 of 1 images are turned by their EXIF data; masks must be upright: look at data.png."
    assert read([tmp_path], 256)["train"].lines().count(line) == expected


def test_programs_read_images_by_one_function_and_say_what_they_cannot(tmp_path):
    data, run = deep_folder(tmp_path / "d", [DEEP] * 5), tmp_path / "run"
    other = deep_folder(tmp_path / "v", [DEEP + 1])
    options = ["--data", data, "--validation", other, "--steps", 1, "--batch", 1, "--output", run]
    (line,) = call("train", *options, "--model", "enet", "--crop", 20, status=1).stderr.splitlines()
    assert line == "--crop must be a multiple of 8 for this model, but got 20."
    call("train", *options)
    model = zoo.from_pretrained(run / "segnet")
    ends = model.about.input["range"]
    assert ends == json.loads((run / "metrics.json").read_text())["read"]["train"]["range"]
    picture = read([data], 256)["train"].pairs[0][0]
    assert np.array_equal(read_picture(data / "images/0.png", model), picture)
    with Image.open(data / "images/0.png") as image:
        assert np.array_equal(model.predict(image), model.predict(picture))
    with pytest.raises(
        ValueError, match=r"'images' must have more than 8 bits, as those of the training"
    ):
        model.predict(Image.fromarray(picture))
    said = call("export.py", run / "segnet", tmp_path / "m.mlxfn", "--shape", 1, 32, 32, 3).stdout
    assert (
        "before the normalisation, {:g} to {:g} are 0 to 255, others clipped.".format(*ends) in said
    )
    options += ["--resume", "--steps", 2]
    for change in (("--learning-rate", 0.5), ("--crop", 64), ("--side", 64)):
        said = call("train", *options, *change, status=1).stderr
        assert ". To change it, start from its model: --model FOLDER --output NEW" in said
    said = call("train", *options, "--crop", 5024, status=1).stderr
    assert said.startswith(
        "--crop must be at most 160, the longer side of the largest image after "
    )


def test_a_class_file_that_a_person_writes_meanwhile_is_kept(tmp_path, monkeypatch):
    (write(tmp_path, [BLOCKS]) / "classes.txt").unlink()
    by_hand = tmp_path / "classes.txt"
    monkeypatch.setattr(train, "proposed_classes", lambda *_, **__: by_hand.write_text("0 mine"))
    said = call("train", "--data", tmp_path, "--write-classes", status=1).stderr
    assert "classes.txt exists: " in said
    assert by_hand.read_text() == "0 mine"


def test_images_that_are_too_small_are_named(tmp_path):
    write(tmp_path, [BLOCKS] * 4 + [BLOCKS[:4, 6:10]])
    said = call("train", "--data", tmp_path, "--output", tmp_path / "x", status=1).stderr
    assert (
        "images/4.png must have at least 8 pixels on each side after --side 256, but has 4 x 4"
        in said
    )
    assert not (tmp_path / "x").exists()


def test_an_ending_that_begins_with_a_hyphen(tmp_path):
    said = call("train", "--data", tmp_path, "--mask-ending", "-labelled", status=2).stderr
    assert "A value that begins with - needs =, such as --mask-ending=-x" in said


def test_folders_of_runs_are_skipped_beside_images_also_after_a_stop(tmp_path):
    folder = write(tmp_path, [BLOCKS] * 5)
    options = "--data", folder, "--steps", 1, "--batch", 1
    call("train", *options, "--output", folder / "runs/train")
    call("train", *options, "--output", folder / "other")
    (folder / "runs/train/metrics.json").unlink()
    (folder / "other/checkpoint.safetensors").unlink()
    assert len(read([folder], 256)["train"].facts) == 5
    (folder / "runs").rename(folder / "images/runs")
    assert "images may contain only images, but contains runs. " in error_of(read, [folder], 256)


def test_label_maps_of_images_with_equal_names_and_an_image_of_few_levels(tmp_path):
    model = randomised(zoo.ENet(2))
    model.save_pretrained(tmp_path / "m")
    files = dict.fromkeys(("a.png", "a.tif", "b.png", "x/b.png"), COLOURS[BLOCKS]) | {
        "deep.png": png(DEEP // 16)
    }
    paths = [put(tmp_path, files) / name for name in files]
    said = call(
        "predict", tmp_path / "m", *paths, "--output", tmp_path / "o/c.png", status=1
    ).stderr
    assert "deep.png keeps " in said
    assert "For its own values, pass --range 1250 1481." in said
    found = {path.name for path in (tmp_path / "o").iterdir()}
    assert found == {
        "c.png",
        "c-a.png.png",
        "c-a.tif.png",
        f"c-{tmp_path.name}-b.png.png",
        "c-x-b.png.png",
    }
    call(
        "predict",
        tmp_path / "m",
        paths[-1],
        "--output",
        tmp_path / "o/c.png",
        "--range",
        1250,
        1481,
    )


def test_models_without_a_range_take_images_as_before(tmp_path):
    model = zoo.ENet(2)
    colour = random.integers(0, 65536, (120, 160, 3))
    put(tmp_path, {"grey.png": png(colour[..., 0]), "colour.png": png(colour)})
    assert np.array_equal(read_picture(tmp_path / "colour.png", model), colour >> 8)
    Image.fromarray((DEEP / 256).astype(np.float32)).save(tmp_path / "f.tif")
    with pytest.raises(
        ValueError, match=r"f\.tif: the values of the image must be 0 to 1 .* Divide by 255"
    ):
        read_picture(tmp_path / "f.tif", model)
    with pytest.raises(ValueError, match="divide by 255"):
        model.predict(np.full((8, 8, 3), 200.0))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        *{
            "a Background": 1,
            "_background_ a": 0,
            "0 1": 0,
            "sky 0": None,
            "sky x": None,
            "1 0": None,
        }.items()
    ],
)
def test_at_most_one_class_is_not_drawn(names, expected):
    classes = [
        {"name": name, "colour": [9, 9, 9], "label": n} for n, name in enumerate(names.split())
    ]
    assert not_drawn(classes) == expected
    drawn = overlaid(np.full((1, 2, 3), 200), np.array([[0, 1]]), classes)[0, :, 0] < 200
    assert [n for n in (0, 1) if not drawn[n]] == ([] if expected is None else [expected])
