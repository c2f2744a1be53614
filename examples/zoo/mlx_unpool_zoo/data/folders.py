"""Find the images and the masks of each split. Nothing in a folder is left out silently."""

from __future__ import annotations

import difflib
import json
import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mlx_unpool.porting.messages import cut

from .pictures import SUFFIXES

SPLITS = {"train": "train", "val": "validation", "test": "test"}  # by the names of folders
MASK_SUFFIXES = (".png", ".tif", ".tiff", ".bmp")
CLASS_FILE = "classes.txt"
# Files that need no use: texts about the data, and files of Windows.
SKIPPED = r".*\.md|(readme|licen[cs]e)(\.dataset|\.roboflow)?(\.txt|\.rst|\.pdf|\.html)?"
SKIPPED += r"|thumbs\.db|desktop\.ini"
ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")
PAGE = "https://github.com/mlx-unpool/mlx-unpool/blob/main/docs/masks.md"
TWO_FOLDERS = "--data IMAGES MASKS --validation IMAGES MASKS --test IMAGES MASKS"
OTHER_TOOLS = f"Polygons and exports of other tools are not read: {PAGE} shows how to convert them."
# What to do about a file or folder that is not used; see hint_for.
HINTS = {
    "folder of splits": "Call a folder for validation val and one for a test test; move others away.",
    "folder": (
        "Call the folders of images and masks images and masks. If it is another split, put "
        "images and masks into a folder train, and call the others val and test. Or pass folders of "
        f"any names, {TWO_FOLDERS}. If it is not for this training, move it away."
    ),
    "folder of files": (
        f"Folders in it are not read: move their files up, or pass the folders of each split, {TWO_FOLDERS}."
    ),
    "text": (
        "If a text lists the classes, write classes.txt, with a line VALUE NAME for each value of the "
        "masks, such as '0 background'. If it lists the images of a split, move these images and "
        "their masks to folders train, val and test. Then move the text away."
    ),
    "export": f"{OTHER_TOOLS} Move it away after that.",
    "archive": "Unpack an archive, and move it away.",
    "picture": "Move images to images and masks to masks.",
    "mask": (
        "Masks must be PNG, TIFF or BMP. JPEG changes their values, also if it is saved as PNG "
        "afterwards: export them as PNG. Save GIF as PNG."
    ),
    "special": "It is a broken link, or neither a file nor a folder: remove it.",
    "other": "If it is an image, save it as PNG, TIFF or JPEG; otherwise move it away.",
}
TEXTS = (".txt", ".csv", ".tsv", ".names", ".lst")
EXPORTS = (".json", ".xml", ".yaml", ".yml", ".jsonl", ".ndjson")


class Pair(NamedTuple):
    """An image and its mask, or the folders of several."""

    image: Path
    mask: Path


def find(
    folders: Sequence[Path],
    others: Mapping[str, Sequence[Path]],
    ending: str = "",
    class_file: Path | None = None,
) -> dict[str, list[Pair]]:
    """The images and masks of each split, sorted by name.

    Args:
        folders: A folder with images/ and masks/, or with train/, val/ and test/, each of which
            has these; or two folders, that of the images and that of the masks.
        others: The same for other splits, by their names; each has one split.
        ending: What the names of masks have after those of their images. If it is given, images
            and masks can be in one folder.
        class_file: A file that can be in a folder, besides those that are called classes.txt.

    Raises:
        ValueError: If a folder contains anything else, or an image has no mask, or a mask no image.
    """
    search = Search(normalised(ending), class_file)
    splits = search.splits_in(folders)
    for split, paths in others.items():
        if split in splits:
            used = splits[split].image.parent
            raise ValueError(f"{used} and --{split} are both for {split}: pass one.")
        (found, *further) = search.splits_in(paths).values()
        if further:
            raise ValueError(f"--{split} must be the folder of one split, but {paths[0]} has several.")
        splits[split] = found
    return {split: search.pairs_in(each) for split, each in splits.items()}


@dataclass(frozen=True)
class Search:
    """Finds files; the arguments are those of :func:`find`."""

    ending: str
    class_file: Path | None

    def splits_in(self, folders: Sequence[Path]) -> dict[str, Pair]:
        """The folders of images and of masks of each split."""
        for folder in folders:
            if not folder.is_dir():
                raise ValueError(f"{folder} is not a folder.")
        if len(folders) > 2:
            names = cut([str(folder) for folder in folders])
            raise ValueError(f"pass one folder or two (images and masks), but got {names}.")
        if len(folders) == 2:
            return {"train": Pair(*folders)}
        inside = self.folders_in(folders[0])
        if "train" not in inside:
            return {"train": self.pair_in(folders[0])}
        self.check_only(folders[0], [*SPLITS], "folder of splits")
        return {split: self.pair_in(inside[n]) for n, split in SPLITS.items() if n in inside}

    def pair_in(self, folder: Path) -> Pair:
        """The folders images/ and masks/ in a folder, or, with an ending, this folder for both."""
        inside = self.folders_in(folder)
        if self.ending and not {"images", "masks"} & inside.keys():
            return Pair(folder, folder)
        if not {"images", "masks"} <= inside.keys():
            has = cut([path.name for path in self.contents(folder)]) or "nothing"
            raise ValueError(
                f"{folder} must contain the folders images and masks, or train (and val, test) with "
                f"these in each, but contains {has}. Rename them, or pass the folders of each split, "
                f"{TWO_FOLDERS}. {OTHER_TOOLS}"
            )
        self.check_only(folder, ["images", "masks"], "folder")
        return Pair(inside["images"], inside["masks"])

    def contents(self, folder: Path) -> list[Path]:
        """What is in a folder, sorted, without what needs no use.

        Raises:
            ValueError: If a name has characters that cannot be printed.
        """
        paths = sorted(path for path in folder.iterdir() if not self.is_skipped(path))
        for path in paths:
            if any(unicodedata.category(character) in ("Cc", "Cs") for character in path.name):
                raise ValueError(
                    f"{folder} contains {path.name!r}: rename it, without control characters, in UTF-8."
                )
        return paths

    def is_skipped(self, path: Path) -> bool:
        """Whether a path is hidden, a text about the data, or a class file."""
        if path.name.startswith("."):
            return True
        if re.fullmatch(SKIPPED, path.name, re.IGNORECASE) or path.name == CLASS_FILE:
            return path.is_file()
        given = self.class_file
        if given is None or path.name.lower() != given.name.lower():
            return False
        return path.is_file() and given.is_file() and path.samefile(given)

    def folders_in(self, folder: Path) -> dict[str, Path]:
        """The folders in a folder, by their names in lower case."""
        found: dict[str, Path] = {}
        for path in self.contents(folder):
            name = path.name.lower()
            if path.is_dir() and found.setdefault(name, path) != path:
                raise ValueError(f"{found[name]} and {path.name} have the same name: rename one.")
        return found

    def check_only(self, folder: Path, names: Sequence[str], kind: str) -> None:
        """Raise ValueError if a folder has more than folders of these names and runs of train."""
        allowed = {name for name, path in self.folders_in(folder).items() if name in names}
        others = [path for path in self.contents(folder) if path.name.lower() not in allowed]
        refuse([path for path in others if not is_run(path)], " and ".join(names), kind)

    def pairs_in(self, folders: Pair) -> list[Pair]:
        """The images in one folder with their masks in another, or in the same."""
        images, masks = self.contents(folders.image), self.contents(folders.mask)
        if folders.image.samefile(folders.mask):
            if not self.ending:
                raise ValueError(
                    f"{folders.image} is the folder of images and masks: pass --mask-ending, too."
                )
            masks = [path for path in images if normalised(path.stem).endswith(self.ending)]
            images = [path for path in images if path not in {*masks}]
        refuse([path for path in images if not is_file(path, SUFFIXES)], "images")
        refuse([path for path in masks if not is_file(path, MASK_SUFFIXES)], "masks")
        named = Named(folders, by_name(images), by_name(masks), self.ending)
        named.check()
        return [Pair(path, named.masks[name + self.ending]) for name, path in named.images.items()]


@dataclass
class Named:
    """The images and masks of two folders by their names."""

    folders: Pair
    images: dict[str, Path]
    masks: dict[str, Path]
    ending: str

    def check(self) -> None:
        """Raise ValueError unless each image has a mask, and each mask an image."""
        if not self.images:
            raise ValueError(f"{self.folders.image} has no images ({', '.join(SUFFIXES)}).")
        wanted = {name + self.ending for name in self.images}
        missing = [name for name in self.images if name + self.ending not in self.masks]
        surplus = [name for name in self.masks if name not in wanted]
        if missing:
            first = self.images[missing[0]]
            raise ValueError(
                f"{len(missing)} of {len(self.images)} images have no mask: {first} needs "
                f"{self.folders.mask / missing[0]}{self.ending}.png{self.advice(missing[0], surplus)}"
            )
        if surplus:
            mask, name = self.masks[surplus[0]], surplus[0].removesuffix(self.ending)
            near = self.images[nearest_name(name, [*self.images])]
            raise ValueError(
                f"{len(surplus)} of {len(self.masks)} masks have no image: {mask} needs an image such as "
                f"{self.folders.image / name}.jpg; the nearest name is {near.name}. Rename or add it, or "
                "move the mask away."
            )

    def advice(self, name: str, surplus: Sequence[str]) -> str:
        """What to do about an image that has no mask."""
        if not self.masks:
            return f", but {self.folders.mask} has no masks ({', '.join(MASK_SUFFIXES)})."
        near = nearest_name(name, surplus or [*self.masks])
        text = f"; the nearest name is {self.masks[near].name}. "
        ending = near.removeprefix(name)
        paired = sum(each + ending in self.masks for each in self.images)
        if ending != near and 2 * paired > len(self.images):
            return f"{text}Pass {shlex.quote(f'--mask-ending={ending}')}."
        if surplus:
            rule = "A mask must have the name of its image (in upper and lower case, too)"
            return f"{text}{rule}, or that and --mask-ending: rename it."
        return f"{text}An image without objects needs a mask, too, all background."


def nearest_name(name: str, names: Sequence[str]) -> str:
    """The shortest of the names that contain a name, or the one that is most similar."""
    containing = [each for each in names if name.lower() in each.lower()]
    return min(containing, key=len, default="") or difflib.get_close_matches(name, names, 1, 0)[0]


def normalised(name: str) -> str:
    """A name with composed characters; file systems of Macs decompose them."""
    return unicodedata.normalize("NFC", name)


def by_name(paths: Sequence[Path]) -> dict[str, Path]:
    """Files by their names without suffix. Raises ValueError if two names are equal."""
    found: dict[str, Path] = {}
    for path in paths:
        name = normalised(path.stem)
        if found.setdefault(name, path) != path:
            raise ValueError(f"{found[name]} and {path.name} have the same name: rename or remove one.")
    return found


def is_file(path: Path, suffixes: Sequence[str]) -> bool:
    """Whether a path is a file, not a FIFO for example, with one of the suffixes."""
    return path.suffix.lower() in suffixes and path.is_file()


def is_run(folder: Path) -> bool:
    """Whether a folder, or one in it, has results of train."""
    if not folder.is_dir():
        return False
    inside = [path for path in folder.iterdir() if path.is_dir()]
    return any((path / "checkpoint.safetensors").is_file() or has_metrics(path) for path in (folder, *inside))


def has_metrics(folder: Path) -> bool:
    """Whether a folder has a metrics.json of train."""
    try:
        found = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and {"settings", "validation"} <= found.keys()


def refuse(paths: Sequence[Path], allowed: str, folder_kind: str = "folder of files") -> None:
    """Raise ValueError if there is anything else in a folder than what is allowed."""
    if paths:
        hints = dict.fromkeys(HINTS[kind_of(path, allowed, folder_kind)] for path in paths)
        names = cut([path.name for path in paths])
        said = f"{paths[0].parent} may contain only {allowed}, but contains {names}."
        raise ValueError(f"{said} {' '.join(hints)}")


def kind_of(path: Path, allowed: str, folder_kind: str) -> str:
    """The key of :data:`HINTS` for a path that is not used."""
    if path.is_dir():
        return folder_kind
    if not path.is_file():
        return "special"
    if path.suffix.lower() in SUFFIXES:
        return "mask" if allowed == "masks" else "picture"
    kinds = {"text": TEXTS, "export": EXPORTS, "archive": ARCHIVES}
    return next((kind for kind, suffixes in kinds.items() if path.suffix.lower() in suffixes), "other")
