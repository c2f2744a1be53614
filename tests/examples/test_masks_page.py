"""The programs and commands of docs/masks.md, with small files as tools and data sets have them."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
from helpers.masks import BLOCKS, COLOURS, put
from helpers.programs import ROOT
from mlx_unpool_zoo.commands.train import parse_arguments, read_data, write_classes
from mlx_unpool_zoo.data import read
from PIL import Image

PAGE = (ROOT / "docs/masks.md").read_text()
CODES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHARED = next(code for code in CODES if "def write(" in code)
PUBLIC = next(code for code in CODES if "def add(" in code)
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",  # from pycocotools
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def run(word: str, change: tuple[str, str] = ("", "")) -> None:
    """Run the block of the page that has a word, after the block that it needs."""
    (code,) = [code for code in CODES if word in code and code not in (SHARED, PUBLIC)]
    first = SHARED if "write(" in code else PUBLIC
    exec(compile(f"{first}\n{code}".replace(*change), "masks.md", "exec"), {})


def refused(word: str) -> str:
    """The error of a program that must write nothing."""
    before = sorted(Path("photos").rglob("*"))
    with pytest.raises(Exception) as error:  # noqa: PT011
        run(word)
    assert sorted(Path("photos").rglob("*")) == before
    return str(error.value)


def mask_of(name: str, folder: str = "photos/masks") -> list[list[int]]:
    return np.array(Image.open(f"{folder}/{name}.png")).tolist()


# Programs: an image of 6 x 4 pixels, whose pixels from (1, 1) to (3, 2) are a leaf.

IMAGE = np.zeros((4, 6, 3), np.uint8)
CORNERS = [[1, 1], [3, 1], [3, 2], [1, 2]]
LEAF = [[0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 0, 0], [0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 0]]
PROGRAMS = {"labelme": "imagePath", "coco": "COCO(", "yolo": "data.yaml"}


def labelme(*shapes: dict, name: str = "a.png", size: tuple[int, int] = (6, 4)) -> dict:
    shapes = shapes or ({"label": "leaf", "points": CORNERS, "shape_type": "polygon"},)
    return {"shapes": shapes, "imagePath": name, "imageWidth": size[0], "imageHeight": size[1]}


def coco(*regions: dict, **other: list) -> dict:
    """The content of instances.json: an annotation for each region."""
    image = {"id": 7, "file_name": "x\\a.png", "width": 6, "height": 4}
    shapes = [
        {"id": n, "image_id": 7, "category_id": 300, **region} for n, region in enumerate(regions)
    ]
    categories = [{"id": 300, "name": "leaf"}]
    return {"images": [image], "annotations": shapes, "categories": categories} | other


def box(left: int, top: int, right: int, bottom: int) -> dict:
    """A region whose pixels are from (left, top) to before (right, bottom)."""
    corners = [left, top, right, top, right, bottom, left, bottom]
    return {"segmentation": [corners]}


def line(corners: list, number: str = "0") -> str:
    return " ".join([number, *map(str, (np.array(corners) / (6, 4)).ravel())])


FILES = {
    "photos/images/a.png": IMAGE,
    "labelme/a.json": labelme(),
    "instances.json": coco(box(1, 1, 4, 3)),
    "labels/a.txt": f"{line(CORNERS)}\n\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(put(tmp_path, FILES))


@pytest.mark.parametrize("tool", PROGRAMS)
@pytest.mark.usefixtures("folder")
def test_a_program_draws_these_pixels_and_a_second_run_changes_nothing(tool):
    run(PROGRAMS[tool])
    assert mask_of("a") == LEAF
    assert Path("photos/classes.txt").read_text() == "0 background\n1 leaf\n"
    assert read([Path("photos")], 256)["train"].pixels()["leaf"] == 6
    Path("photos/classes.txt").write_text("mine")
    assert refused(PROGRAMS[tool]).startswith("photos/masks exists: rename it")
    Path("photos/masks").rename("kept")
    assert refused(PROGRAMS[tool]).startswith("photos/classes.txt must be\n0 background\n1 leaf\n")
    assert Path("photos/classes.txt").read_text() == "mine"


@pytest.mark.usefixtures("folder")
def test_splits_have_one_class_file():
    for split in ("train", "val"):
        put(Path(), {f"photos/{split}/images/a.png": IMAGE})
        run("imagePath", ('Path("photos") ', f'Path("photos/{split}")'))
        assert mask_of("a", f"photos/{split}/masks") == LEAF
    assert [path.as_posix() for path in Path().rglob("classes.txt")] == ["photos/classes.txt"]


@pytest.mark.parametrize(
    ("tool", "files", "said"),
    [
        (
            "labelme",
            {"labelme/a.json": labelme(size=(4, 6))},
            "a: (4, 6), but the image has (6, 4)",
        ),
        ("labelme", {"labelme/b.json": labelme(name="b.png")}, "photos/images has no b"),
        (
            "labelme",
            {"labelme/b.json": labelme(name="..\\a.png")},
            "labelme/b.json is for ../a.png",
        ),
        (
            "labelme",
            {"labelme/a.json": labelme({"label": "leaf", "points": [], "shape_type": "circle"})},
            "labelme/a.json: circle",
        ),
        (
            "labelme",
            {"labelme/a.json": labelme({"label": "Leaf", "points": [], "shape_type": "polygon"})},
            "labelme/a.json: Leaf is not in names",
        ),
        ("coco", {"instances.json": coco({"segmentation": []})}, "a.png has boxes"),
        ("coco", {"instances.json": coco({"segmentation": [[1, 1, 3, 3]]})}, "expected numpy"),
        ("coco", {"instances.json": coco(box(0, 0, 1, 1) | {"category_id": 1})}, "1"),
        ("coco", {"instances.json": coco(box(0, 0, 1, 1) | {"image_id": "7"})}, "are not listed"),
        (
            "coco",
            {"instances.json": coco(box(0, 0, 1, 1), box(1, 1, 2, 2) | {"id": 0})},
            "two annotations have the same id",
        ),
        (
            "coco",
            {"instances.json": coco(categories=[{"id": n, "name": n} for n in range(255)])},
            "256 classes are too many",
        ),
        (
            "coco",
            {
                "instances.json": coco(
                    images=[
                        {"id": n, "file_name": f"{n}/a.png", "width": 6, "height": 4}
                        for n in (1, 2)
                    ]
                )
            },
            "two images are called a",
        ),
        ("coco", {"instances.json": coco(images=[{"id": 7, "file_name": "a.png"}])}, "height"),
        ("yolo", {"labels/b.txt": ""}, "no image for b.txt"),
        ("yolo", {"labels/a.txt": "0 .5 .5 .2 .2"}, "a: a box, not a polygon"),
        ("yolo", {"labels/a.txt": line(CORNERS) + " .9"}, "a: a box, not a polygon"),
        ("yolo", {"labels/a.txt": "0 1 1 3 1 3 3"}, "a: pixels, not shares of the size"),
        ("yolo", {"labels/a.txt": line(CORNERS, "1")}, "a: class 1"),
        ("yolo", {"labels/a.txt": line(CORNERS, "-1")}, "a: class -1"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_program_stops_before_it_writes_something_wrong(tool, files, said):
    put(Path(), files)
    assert said in refused(PROGRAMS[tool])


@pytest.mark.usefixtures("folder")
def test_labels_in_another_folder_are_missed():
    Path("labels").rename("train")
    assert refused(PROGRAMS["yolo"]).startswith("no labels/*.txt")
    Path("labelme").rename("annotations")
    assert refused(PROGRAMS["labelme"]) == "there are no annotations"


@pytest.mark.usefixtures("folder")
def test_regions_of_coco_are_drawn_as_pycocotools_draws_them():
    """A crowd in run lengths, smaller objects over larger ones, one partly outside, no areas."""
    stem = {"id": 0, "name": "stem"}
    crowd = {"segmentation": {"counts": [16, 8], "size": [4, 6]}, "iscrowd": 1}
    small, outside = box(2, 1, 3, 2) | {"category_id": 0}, box(-9, 3, 1, 9)
    content = coco(
        small, box(1, 0, 4, 3), crowd, outside, categories=[stem, coco()["categories"][0]]
    )
    put(Path(), {"instances.json": content})
    run(PROGRAMS["coco"])
    assert mask_of("a") == [
        [0, 2, 2, 2, 2, 2],
        [0, 2, 1, 2, 2, 2],
        [0, 2, 2, 2, 2, 2],
        [2, 0, 0, 0, 2, 2],
    ]


@pytest.mark.usefixtures("folder")
def test_later_polygons_of_labelme_cover_earlier_ones_and_names_are_utf8():
    shapes = [
        {"label": "Blätter", "points": [[0, 0], [5, 0], [5, 3], [0, 3]], "shape_type": "polygon"},
        {"label": "leaf", "points": [[1, 1], [3, 1], [99, 99]], "shape_type": "polygon"},
    ]
    put(Path(), {"labelme/a.json": json.dumps(labelme(*shapes), ensure_ascii=False)})
    run(PROGRAMS["labelme"], ('"leaf"]', '"leaf", "Blätter"]'))
    assert mask_of("a")[1] == [2, 1, 1, 1, 2, 2]
    assert Path("photos/classes.txt").read_bytes().decode("utf-8").endswith("1 leaf\n2 Blätter\n")


@pytest.mark.parametrize("kind", ["jpg", "tif"])
@pytest.mark.usefixtures("folder")
def test_masks_are_upright(kind, capsys):
    exif = Image.Exif()
    exif[0x112] = 6  # a quarter turn
    Path("photos/images/a.png").unlink()
    Image.fromarray(np.swapaxes(IMAGE, 0, 1)).save(f"photos/images/a.{kind}", exif=exif)
    run(PROGRAMS["yolo"])
    assert mask_of("a") == LEAF
    assert capsys.readouterr().out.startswith("EXIF data turn 1 of 1 images")


# Public data sets: a few of their files, under the published names.

DRAWN = (BLOCKS > 0).astype(np.uint8)
FIELD = (np.arange(BLOCKS.size).reshape(BLOCKS.shape) % 32 < 24).astype(np.uint8)


def pixels_of(split: str) -> dict[str, int]:
    record = read([Path("photos")], 256)[split]
    return {name: pixels for name, pixels in record.pixels().items() if pixels}


def counted(mask: np.ndarray, names: list[str]) -> dict[str, int]:
    """The pixels of each name in a mask of 0, 1, ..."""
    return {name: int((mask == value).sum()) for value, name in enumerate(names)}


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def picture(number: int) -> np.ndarray:
    """An image that differs from those of other numbers."""
    return np.full((*BLOCKS.shape, 3), 10 * number, np.uint8)


def strips(*values: int) -> np.ndarray:
    """A mask with a column of each value."""
    return np.array([values] * 8, np.uint8)


@pytest.mark.usefixtures("empty")
def test_voc_has_21_classes_and_the_files_of_its_lists():
    values = strips(*range(21), 255)
    root = Path("VOCdevkit/VOC2012")
    for number, name in enumerate(["2007_1", "2007_2", "2007_3"]):
        files = {f"JPEGImages/{name}.jpg": picture(number)[:8, :22]}
        put(root, files | {f"SegmentationClass/{name}.png": values})
    lists = {"train": "2007_1\n", "val": "2007_2\n", "trainval": "2007_1\n2007_2\n"}
    put(root, {f"ImageSets/Segmentation/{name}.txt": text for name, text in lists.items()})
    run("VOCdevkit")
    names = [entry["name"] for entry in read([Path("photos")], 256)["train"].classes]
    assert (names[15], names[20]) == ("person", "tvmonitor")
    assert pixels_of("train") == pixels_of("validation")
    assert len(pixels_of("train")) == 22
    assert pixels_of("train")["ignored"] == 8
    assert refused("VOCdevkit").startswith("photos exists: rename it")


@pytest.mark.usefixtures("empty")
def test_cityscapes_has_the_19_classes_of_its_evaluation():
    for number, split in enumerate(("train", "val", "test")):
        name = f"{split}/aachen/aachen_000000_000019"
        files = {f"leftImg8bit/{name}_leftImg8bit.png": picture(number)[:8].repeat(2, 1)[:, :34]}
        for kind in ("color", "instanceIds", "labelIds"):
            files[f"gtFine/{name}_gtFine_{kind}.png"] = strips(*range(34))
        put(Path(), files)
    run("leftImg8bit")
    assert pixels_of("train") == pixels_of("validation")
    assert len(pixels_of("train")) == 20
    assert pixels_of("train")["ignored"] == 15 * 8
    names = read([Path("photos")], 256)["train"].classes
    assert [entry["name"] for entry in names if entry["label"] in (7, 24, 33)] == [
        "road",
        "person",
        "bicycle",
    ]


@pytest.mark.usefixtures("empty")
def test_drive_has_vessels_and_ignores_what_the_camera_does_not_see():
    for number, (folder, name) in enumerate({"training": "21_training", "test": "01_test"}.items()):
        kinds = {"1st_manual": (f"{name[:2]}_manual1", DRAWN), "mask": (f"{name}_mask", FIELD)}
        put(Path("DRIVE"), {f"{folder}/images/{name}.tif": picture(number)})
        for kind, (file, pixels) in kinds.items():
            put(Path("DRIVE"), {f"{folder}/{kind}/{file}.gif": 255 * pixels})
    run("DRIVE")
    expected = counted(np.where(FIELD, DRAWN, 2), ["background", "vessel", "ignored"])
    assert pixels_of("train") == pixels_of("test") == expected


@pytest.mark.usefixtures("empty")
def test_pets_are_divided_as_their_lists_say():
    for number, name in enumerate(["Abyssinian_1", "beagle_2", "pug_3"]):
        put(Path(), {f"images/{name}.jpg": picture(number), "images/Abyssinian_1.mat": b""})
        put(Path("annotations/trimaps"), {f"{name}.png": BLOCKS + 1, f"._{name}.png": b"\0"})
    put(Path("annotations"), {"trainval.txt": "Abyssinian_1 1 1 1\nbeagle_2 5 2 1\n"})
    put(Path("annotations"), {"test.txt": "pug_3 25 2 20\n", "list.txt": "#Image CLASS-ID\n"})
    run("trimaps")
    one = counted(BLOCKS, ["pet", "background", "ignored"])
    assert pixels_of("test") == one
    assert pixels_of("train") == {name: 2 * pixels for name, pixels in one.items()}


@pytest.mark.usefixtures("empty")
def test_carvana_has_all_pictures_of_a_car_in_one_split():
    for number, name in enumerate(["00087a6bd4dc_01", "00087a6bd4dc_02", "fff9b3a5373f_16"]):
        put(Path(), {f"train/{name}.jpg": picture(number)})
        put(Path(), {f"train_masks/{name}_mask.gif": 255 * DRAWN})
    run("train_masks")
    one = counted(DRAWN, ["background", "car"])
    assert pixels_of("train") == one
    assert pixels_of("validation") == {name: 2 * pixels for name, pixels in one.items()}


# Commands: those of public sets, and the options of the table.


def commands_with(word: str) -> tuple[str, list[str]]:
    """The lines that write a class file, and the options of the training that reads it."""
    blocks = re.findall(r"(?:^    .*\n)+", PAGE, re.MULTILINE)
    (block,) = [dedent(block) for block in blocks if word in block]
    before, options = block.replace("\\\n", "").split("python -m mlx_unpool_zoo train")
    return before, shlex.split(options)


def options_of(tool: str) -> list[str]:
    (row,) = re.findall(rf"^\| {tool} .*$", PAGE, re.MULTILINE)
    (options,) = re.findall(r"`(--data .*?)`", row)
    return shlex.split(options)


@pytest.mark.parametrize(
    ("word", "files", "names"),
    [
        (
            "camvid",
            {
                f"{split}{kind}/{number}.png": picture(number)[:8, :12]
                if not kind
                else strips(*range(12))
                for number, split in enumerate(("train", "val", "test"))
                for kind in ("", "annot")
            },
            11,
        ),
        (
            "isic",
            {
                f"ISIC2018_Task1{name}.{kind}": picture(number) if kind == "jpg" else 255 * DRAWN
                for number in range(5)
                for name, kind in {
                    f"-2_Training_Input/ISIC_{number}": "jpg",
                    f"_Training_GroundTruth/ISIC_{number}_segmentation": "png",
                }.items()
            },
            2,
        ),
    ],
)
@pytest.mark.usefixtures("empty")
def test_commands_of_public_data_sets_read_them(word, files, names, capfd):
    put(Path(), files)
    write, options = commands_with(f"{word}.txt")
    subprocess.run(write.replace("python", sys.executable, 1), shell=True, check=True)
    splits = read_data(parse_arguments(options))
    assert len(splits["train"].classes) == names


GREY = np.dstack([DRAWN] * 3)


@pytest.mark.parametrize(
    ("tool", "images", "masks", "mask"),
    [
        ("CVAT", "JPEGImages/{}.jpg", "SegmentationClass/{}.png", COLOURS[DRAWN]),
        (
            "Roboflow",
            "train/{}.jpg valid/v{}.jpg test/t{}.jpg",
            "train/{}_mask.png valid/v{}_mask.png test/t{}_mask.png",
            DRAWN,
        ),
        ("Supervisely", "ds0/img/{}.jpg", "ds0/masks_machine/{}.png", GREY),
        ("labelme", "JPEGImages/{}.jpg", "SegmentationClass/{}.png", DRAWN),
    ],
)
@pytest.mark.usefixtures("empty")
def test_options_of_exports_write_a_class_file_and_read_the_masks(tool, images, masks, mask):
    for number in range(5):
        names = zip(images.split(), masks.split(), strict=True)
        for place, (image, truth) in enumerate(names):
            files = {image.format(number): picture(number + 6 * place), truth.format(number): mask}
            put(Path(), files)
    words = options_of(tool)
    write_classes(parse_arguments(words))
    words.remove("--write-classes")
    (path,) = Path().rglob("classes.txt")
    lines = path.read_text().splitlines()
    values = [line.split()[0] for line in lines if not line.startswith("# ")]
    path.write_text(
        "\n".join(f"{value} {name}" for value, name in zip(values, ("rest", "leaf"), strict=True))
    )
    record = read_data(parse_arguments(words))["train"].record
    assert record.pixels()["leaf"] == DRAWN.sum() * len(record.facts)
