"""Which files are the images and the masks of each split. Nothing in a folder is left out silently."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mlx_unpool.porting.messages import cut

from .pictures import SUFFIXES

SPLITS = {"train": "train", "val": "validation", "test": "test"}  # by the names of folders
MASK_SUFFIXES = (".png", ".tif", ".tiff", ".bmp")
CLASS_FILE = "classes.txt"
# What needs no use: texts about the data, files of macOS and Windows, results of train.
SKIPPED = r"\..*|.*\.md|(readme|licen[cs]e)(\.dataset|\.roboflow)?(\.txt|\.rst|\.pdf|\.html)?"
SKIPPED += r"|thumbs\.db|desktop\.ini|runs"
PAGE = "https://github.com/mlx-unpool/mlx-unpool/blob/main/docs/masks.md"
OTHER_TOOLS = f"For polygons (labelme, COCO, YOLO) and exports of other tools see {PAGE}"
LISTS = "Lists of splits are not read: put the files of each split into folders train, val and test."
OTHERS = "Or pass the folders to use: --data IMAGES MASKS, and --validation and --test in the same way."
HINTS = {"folder": OTHERS, ".txt": f"{LISTS} {OTHER_TOOLS}", ".csv": LISTS, ".json": OTHER_TOOLS}
HINTS |= {".xml": OTHER_TOOLS, ".yaml": OTHER_TOOLS}


class Pair(NamedTuple):
    """An image and its mask, or the folders of several."""

    image: Path
    mask: Path


def find(
    folders: Sequence[Path], others: Mapping[str, Sequence[Path]], ending: str = ""
) -> dict[str, list[Pair]]:
    """The images and masks of each split, sorted by name.

    Args:
        folders: A folder with images/ and masks/, or with train/, val/ and test/, each of which has these;
            or two folders, that of the images and that of the masks.
        others: The same for other splits, by their names; each has one split.
        ending: What the names of masks add to those of their images. If it is given, images and masks can
            be in one folder.

    Raises:
        ValueError: If a folder contains anything else, or an image has no mask, or a mask no image.
    """
    splits = splits_in(folders, ending)
    for split, paths in others.items():
        if split in splits:
            raise ValueError(f"{splits[split].image.parent} and --{split} are both for {split}: pass one.")
        (found, *further) = splits_in(paths, ending).values()
        if further:
            raise ValueError(f"--{split} must be the folder of one split, but {paths[0]} has several.")
        splits[split] = found
    return {split: pairs_in(each, ending) for split, each in splits.items()}


def splits_in(folders: Sequence[Path], ending: str) -> dict[str, Pair]:
    """The folders of images and of masks of each split."""
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder.")
    if len(folders) > 2:
        raise ValueError(f"pass one folder or two, but got {cut([str(folder) for folder in folders])}.")
    if len(folders) == 2:
        return {"train": Pair(*folders)}
    root = folders[0]
    inside = folders_in(root)
    if "train" not in inside:
        return {"train": pair_in(root, ending)}
    refuse([path for path in contents(root) if path.name.lower() not in SPLITS], "train, val and test")
    return {split: pair_in(inside[name], ending) for name, split in SPLITS.items() if name in inside}


def pair_in(folder: Path, ending: str) -> Pair:
    """The folders images/ and masks/ in a folder, or, with an ending of masks, this folder for both."""
    inside = folders_in(folder)
    if ending and not {"images", "masks"} & inside.keys():
        return Pair(folder, folder)
    if not {"images", "masks"} <= inside.keys():
        has = cut([path.name for path in contents(folder)]) or "nothing"
        raise ValueError(
            f"{folder} must contain the folders images and masks, or train (and val, test) with these in "
            f"each, but contains {has}. For other names, pass two folders: --data IMAGES MASKS. {OTHER_TOOLS}"
        )
    others = [path for path in contents(folder) if path.name.lower() not in ("images", "masks")]
    refuse(others, "images and masks")
    return Pair(inside["images"], inside["masks"])


def contents(folder: Path) -> list[Path]:
    """What is in a folder, sorted, without hidden files, texts about the data and the class file."""
    paths = [path for path in folder.iterdir() if not re.fullmatch(SKIPPED, path.name, re.IGNORECASE)]
    return sorted(path for path in paths if path.name != CLASS_FILE)


def folders_in(folder: Path) -> dict[str, Path]:
    """The folders in a folder, by their names in lower case."""
    found: dict[str, Path] = {}
    for path in contents(folder):
        if path.is_dir() and found.setdefault(path.name.lower(), path) != path:
            raise ValueError(f"{found[path.name.lower()]} and {path.name} have the same name: remove one.")
    return found


def refuse(paths: Sequence[Path], allowed: str) -> None:
    """Raise ValueError if there is anything else in a folder than what is allowed."""
    if paths:
        folder, names = paths[0].parent, [path.name for path in paths]
        kinds = ["folder" if path.is_dir() else path.suffix.lower() for path in paths]
        hint = next((HINTS[kind] for kind in kinds if kind in HINTS), "")
        said = f"{folder} may contain only {allowed}, but contains {cut(names)}: move it away."
        raise ValueError(f"{said} {hint}".strip())


def pairs_in(folders: Pair, ending: str) -> list[Pair]:
    """The images of a folder with the masks of the same names (and the ending) in another, or in the same."""
    images, masks = contents(folders.image), contents(folders.mask)
    if folders.image.samefile(folders.mask):
        if not ending:
            raise ValueError(f"{folders.image} is the folder of images and masks: pass --mask-ending, too.")
        images = [path for path in images if not path.stem.endswith(ending)]
        masks = [path for path in masks if path.stem.endswith(ending)]
    pictures = by_name(images, SUFFIXES, "images")
    drawn = by_name(masks, MASK_SUFFIXES, "masks (PNG, TIFF or BMP; JPEG changes their values)")
    wanted = {name + ending: path for name, path in pictures.items()}
    if not pictures:
        raise ValueError(f"{folders.image} has no images ({', '.join(SUFFIXES)}).")
    if missing := [name for name in wanted if name not in drawn]:
        image, needed = wanted[missing[0]], folders.mask / f"{missing[0]}.png"
        raise ValueError(f"{len(missing)} of {len(wanted)} images have no mask: {image} needs {needed}.")
    if surplus := [name for name in drawn if name not in wanted]:
        raise ValueError(
            f"{len(surplus)} of {len(drawn)} masks have no image: {drawn[surplus[0]]} needs an image "
            f"{folders.image / surplus[0].removesuffix(ending)}.jpg, for example."
        )
    return [Pair(path, drawn[name]) for name, path in wanted.items()]


def by_name(paths: Iterable[Path], suffixes: Sequence[str], kind: str) -> dict[str, Path]:
    """Files by their names without suffix. Raises ValueError for folders, other files and equal names."""
    refuse([path for path in paths if path.is_dir() or path.suffix.lower() not in suffixes], kind)
    found: dict[str, Path] = {}
    for path in paths:
        name = unicodedata.normalize("NFC", path.stem)
        if found.setdefault(name, path) != path:
            raise ValueError(f"{found[name]} and {path.name} have the same name: remove one.")
    return found
