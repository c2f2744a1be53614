"""Which files are the images of each split, and which is the mask of each image."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from .pictures import LOSSLESS, SUFFIXES, files_in, pictures_in
from .polygons import Shapes, coco, labelme, read_json, yolo
from .tables import TABLES

SPLITS = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
SPLIT_OF = {name: split for split, names in SPLITS.items() for name in names}
IMAGES = ("images", "image", "imgs", "img", "jpegimages", "leftimg8bit")
MASKS = (
    "masks",
    "mask",
    "masks_machine",
    "segmentationclasspng",
    "segmentationclass",
    "annotations",
    "gtfine",
    "labels",
)
BESIDE = ("annot", "_labels")  # the masks of train/ in CamVid, and in Kaggle's copy


@dataclass
class Found:
    """The files of one split: an image with the file, or the shapes, of its mask."""

    files: list[tuple[Path, Path | Shapes]] = field(default_factory=list)
    names: list[str] | None = None  # of the classes, from files of polygons
    table: Path | None = None
    notes: list[str] = field(default_factory=list)


def find(folders: Sequence[Path], ending: str | None = None) -> dict[str, Found]:
    """The files of each split in one folder, or in a folder of images and one of masks.

    ::

        images/a.jpg         masks/a.png            one split, for training
        images/train/a.jpg   masks/train/a.png      also val, valid, validation, test, training, testing
        train/images/a.jpg   train/masks/a.png      also train/a.jpg with train/a_mask.png
        train/a.jpg          trainannot/a.png       CamVid; train_labels: Kaggle
        JPEGImages/a.jpg     SegmentationClass/a.png, with ImageSets/Segmentation/train.txt: VOC
        annotations/instances_train2017.json, instances_val2017.json: COCO
    """
    if len(folders) > 2:
        raise ValueError(f"pass one folder or two, but got {', '.join(map(str, folders))}.")
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder.")
    root = folders[0]
    if len(folders) == 2:
        return in_pair(folders[0], folders[1], root, ending)
    if parts := splits_in(root):
        found = {
            split: found_in(*pair_in(part), part, ending) for split, part in parts.items() if has_masks(part)
        }
        return without(found, parts)
    if len(files := coco_files(root)) > 1:
        return {split: found_in_coco(files[split], root) for split in SPLITS if split in files}
    images, masks = pair_in(root)
    if images == masks and not files_in(root) and not file_with_shapes(root):
        other = of_other_tools(root)
        raise ValueError(f"{root} has {listed(folders_in(root))}{other}. {WAYS}")
    return in_pair(images, masks, root, ending)


def in_pair(images: Path, masks: Path, root: Path, ending: str | None) -> dict[str, Found]:
    """The splits in a folder of images and one of masks: their subfolders, or VOC's lists of names."""
    pictures, labels = splits_in(images), splits_in(masks)
    if pictures and labels:
        found = {s: found_in(pictures[s], labels[s], root, ending) for s in pictures if s in labels}
        return without(found, pictures)
    whole, folder, parts = found_in(images, masks, root, ending), root / "ImageSets" / "Segmentation", {}
    for split, path in ((SPLIT_OF[name], folder / f"{name}.txt") for name in SPLIT_OF):
        if path.exists():
            names = {*path.read_text().split()}
            parts[split] = replace(whole, files=[pair for pair in whole.files if pair[0].stem in names])
    return parts if "train" in parts else {"train": whole}


def without(found: dict[str, Found], parts: dict[str, Path]) -> dict[str, Found]:
    """The splits that have masks, with a note about the others: a test often has none."""
    gone = [f"{part} has no masks, and is not used." for split, part in parts.items() if split not in found]
    if "train" not in found:
        raise ValueError(gone[0])
    found["train"].notes += gone
    return found


# Parts of it.

WAYS = "It must have images/ and masks/, train/ and val/ with these, images and masks, or polygons (labelme, "
WAYS += "COCO, YOLO). Or pass two folders: --data IMAGES MASKS."


def folders_in(folder: Path) -> dict[str, Path]:
    """The folders in a folder by their names in lower case."""
    return {p.name.lower(): p for p in sorted(folder.iterdir()) if p.is_dir() and p.name[0] != "."}


def splits_in(folder: Path) -> dict[str, Path]:
    """The folders of splits in a folder; empty if no folder has the name of one.

    Raises:
        ValueError: If there is no one for training, or there is only one, beside folders of other names.
    """
    inside = {name: path for name, path in folders_in(folder).items() if not name.endswith(BESIDE)}
    named = {name.removesuffix("2017"): path for name, path in inside.items()}
    parts = {SPLIT_OF[n]: named[n] for split in SPLITS.values() for n in split if n in named}  # train first
    of_images = {*IMAGES, *MASKS} & {*inside}
    if not parts or of_images:
        return {}
    if "train" not in parts or (len(parts) == 1 and len(inside) > 1):
        raise ValueError(
            f"{folder} has the folders {listed(inside)}: {listed(parts)} may be a split or not. Pass the folder "
            "for training alone, as --data, and others as --validation and --test."
        )
    return parts


def has_masks(part: Path) -> bool:
    """Whether the folder of a split has more than images: a test often has no masks."""
    images, masks = pair_in(part)
    return (
        images != masks
        or file_with_shapes(part) is not None
        or len({p.suffix for p in files_in(part)}) > 1
        or bool(files_in(part, LOSSLESS))
    )


def pair_in(folder: Path) -> tuple[Path, Path]:
    """The folders of images and of masks in a folder; the folder itself if it has both."""
    inside = folders_in(folder)
    images, masks = ([inside[name] for name in names if name in inside] for names in (IMAGES, MASKS))
    if images and masks:
        return images[0], masks[0]
    beside = [folder.with_name(folder.name + end) for end in BESIDE]
    return folder, next((other for other in beside if other.is_dir()), folder)


def found_in(images: Path, masks: Path, root: Path, ending: str | None) -> Found:
    """The images in a folder, with masks or shapes."""
    near, notes = dict.fromkeys((masks.parent, masks, root, root.parent)), []
    table = next((base / name for base in near for name in TABLES if (base / name).exists()), None)
    drawn = images != masks and any(path.suffix.lower() in LOSSLESS for path in pictures_in(masks))
    shapes = None if drawn else next(filter(None, map(file_with_shapes, (masks, root))), None)
    if shapes is None:
        return Found(files_of(images, masks, ending), None, table)
    if shapes.suffix == ".txt":
        table = next((path for base in near for path in sorted(base.glob("*.y*ml"))), table)
        if not table:
            raise ValueError(f"{masks} has polygons of YOLO, but there is no data.yaml with their names.")
        names, files = yolo(images, masks, table, notes.append)
    elif "categories" in read_json(shapes):
        names, files = coco(shapes, root, notes.append)
    else:
        names, files = labelme(shapes.parent, notes.append)
    if gone := [path for path in files if not path.exists()]:
        notes.append(f"{len(gone)} images of {shapes} are not there: {gone[0].name}, for example.")
    return Found([(path, each) for path, each in sorted(files.items()) if path.exists()], names, None, notes)


def coco_files(root: Path) -> dict[str, Path]:
    """Files of COCO by the split in their names, such as annotations/instances_val2017.json."""
    found = {}
    for path in sorted(root.glob("annotations/*.json")):
        words = re.findall(r"[a-z]+", path.stem.lower())
        if "categories" in read_json(path):
            found[next((SPLIT_OF[word] for word in words if word in SPLIT_OF), path.name)] = path
    return found


def found_in_coco(path: Path, root: Path) -> Found:
    """The images of a file of COCO."""
    notes: list[str] = []
    names, files = coco(path, root, notes.append)
    if gone := [path for path in files if not path.exists()]:
        notes.append(f"{len(gone)} images of {path} are not there: {gone[0].name}, for example.")
    return Found(
        [(picture, each) for picture, each in sorted(files.items()) if picture.exists()], names, None, notes
    )


def file_with_shapes(folder: Path) -> Path | None:
    """A file of COCO or labelme, or one of YOLO (a class and numbers from 0 to 1)."""
    for path in [*sorted(folder.glob("*.json")), *sorted(folder.glob("annotations/*.json"))]:
        keys = read_json(path).keys()
        if {"images", "annotations", "categories"} <= keys or {"imagePath", "shapes"} <= keys:
            return path
    texts = (path for path in folder.rglob("*.txt") if path.name not in TABLES)
    return next(
        (p for p in texts if re.match(r"\d+( [\d.e-]+){4,}\s", p.read_text(errors="replace") + "\n")), None
    )


def of_other_tools(folder: Path) -> str:
    """Which files of annotations that are not read lie in a folder, and what to export instead."""
    if any(path.read_text(errors="replace").lstrip()[:1] == "[" for path in folder.glob("*.json")):
        return ", and a list in JSON as of Label Studio (export as COCO)"
    if any("<annotation" in path.read_text(errors="replace")[:300] for path in folder.rglob("*.xml")):
        return ", and XML as of CVAT (export as COCO 1.0, or as Segmentation mask 1.1)"
    return ""


def listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


def files_of(images: Path, masks: Path, ending: str | None = None) -> list[tuple[Path, Path]]:
    """Pairs of an image and its mask, sorted by name. Both can be in one folder.

    A mask has the name of its image, or the part of it in which the images differ, with the same text
    before and after it in all masks::

        a.jpg with a_mask.png           b_leftImg8bit.png with b_gtFine_labelIds.png
        a_1.jpg with mask_1.png         21_training.tif with 21_manual1.gif

    Args:
        images: The folder of the images. If it has only subfolders, the images in them.
        masks: The same for the masks.
        ending: How the names of the masks end, needed if several ways fit.
    """
    if images.samefile(masks):
        pictures, named = in_one_folder(images)
    else:
        pictures = names_in(images, SUFFIXES)
        named = names_in(masks, LOSSLESS) or names_in(masks, SUFFIXES)  # read_mask says why JPEG is refused
    if not pictures:
        raise ValueError(f"{images} has no images ({', '.join(SUFFIXES)}).")
    if images.name == "JPEGImages" and not pictures.keys().isdisjoint(named):  # has images for other tasks
        pictures = {name: path for name, path in pictures.items() if name in named}
    ways = ways_of([*pictures], named)
    fitting = {text: way for text, way in ways.items() if all(name in named for name in way)}
    chosen = [text for text in fitting if ending is None or text.endswith(ending.removesuffix(".png"))]
    chosen = [""] if "" in chosen and not ending else chosen
    if fitting and len(chosen) != 1:
        listed = ", ".join(f"'{text}'" for text in sorted(fitting))
        wrong = f", but got '{ending}'" if ending else ""
        raise ValueError(f"the masks in {masks} end in {listed}: pass one as --mask-ending{wrong}.")
    # If no way fits all images, that for most of them shows which name is missing.
    way = ways[chosen[0]] if chosen else max(ways.values(), key=lambda way: sum(n in named for n in way))
    needed = dict(zip(way, pictures.values()))
    if alone := [name for name in needed if name not in named]:
        raise ValueError(
            f"{len(alone)} of {len(pictures)} files have no mask in {masks}: {needed[alone[0]]}, for example,"
            f" needs {Path(alone[0]).name}.png there (or {', '.join(LOSSLESS[1:5])}, not JPEG)."
        )
    others = {name for each in fitting.values() for name in each}
    if alone := [name for name in named if name not in others and name.endswith(chosen[0])]:
        raise ValueError(
            f"{len(alone)} of {len(named)} files have no image in {images}: {named[alone[0]]}, for example, "
            f"needs {Path(alone[0]).name.removesuffix(chosen[0])}.jpg or .png there."
        )
    return [(path, named[name]) for name, path in needed.items()]


def names_in(folder: Path, suffixes: Sequence[str]) -> dict[str, Path]:
    """The files of a folder, or of its subfolders if it has none, by name without suffix."""
    files, found = files_in(folder, suffixes), {}
    for inside in () if files else sorted(folder.iterdir()):
        if inside.is_dir() and inside.name[0] != ".":
            files += files_in(inside, suffixes)
    for path in files:
        name = unicodedata.normalize("NFC", path.relative_to(folder).with_suffix("").as_posix())
        if (other := found.setdefault(name, path)) != path:
            raise ValueError(f"{other} and {path.name} have the same name: remove one.")
    return dict(sorted(found.items()))


def in_one_folder(folder: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """The images and the masks of one folder: by format, or ``a_mask.png`` is the mask of ``a.png``."""
    lossy = names_in(folder, [suffix for suffix in SUFFIXES if suffix not in LOSSLESS])
    named = names_in(folder, LOSSLESS)
    if lossy:
        return lossy, named
    first = next(iter(named), "")
    for ending in (name[len(first) :] for name in named if name.startswith(first)):
        pictures = {name: path for name, path in named.items() if ending and not name.endswith(ending)}
        if pictures and {name + ending for name in pictures} == named.keys() - pictures.keys():
            return pictures, {name: path for name, path in named.items() if name not in pictures}
    raise ValueError(f"{folder} must have images and masks with names such as a.png and a_mask.png.")


def ways_of(images: Sequence[str], masks: Iterable[str]) -> dict[str, list[str]]:
    """Possible names of the masks of images, by the ending (or "start*ending") of these names."""
    ways = {"": [*images]}
    words = [re.findall(r"\d+|[^\W\d_]+|[\W_]", name) for name in images]
    same = [len({*each}) == 1 for each in zip(*words)]
    last = [len({*each}) == 1 for each in zip(*(row[::-1] for row in words))]
    after = min([*last, False].index(False), len(last) - 1)
    before = min([*same, False].index(False), len(same) - 1 - after)
    parts = ["".join(row[before : len(row) - after]) for row in words]
    start = "".join(words[0][:before])
    for part in {parts[0], parts[-1]}:
        # Not within a number, nor after a letter.
        edges = (r"(?<!\d)" if part[0].isdigit() else r"(?<![^\W\d_])") + re.escape(part)
        edges += r"(?!\d)" if part[-1].isdigit() else ""
        for name in masks:
            for found in re.finditer(edges, name):
                first, ending = name[: found.start()], name[found.end() :]
                text = ending if first == start else f"{first}*{ending}"
                ways.setdefault(text, [f"{first}{part}{ending}" for part in parts])
    return ways
