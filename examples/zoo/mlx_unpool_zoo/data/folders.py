"""Find the images and the masks of each split. Nothing in a folder is left out silently."""

from __future__ import annotations

import difflib
import itertools
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mlx_unpool.porting.messages import cut

from .pictures import SUFFIXES

SPLITS = {"train": "train", "val": "validation", "test": "test"}  # by the names of folders
MASK_SUFFIXES = (".png", ".tif", ".tiff", ".bmp")
CLASS_FILE = "classes.txt"
LISTED = 100  # lines of a text that are compared with the names of images
# Files that need no use: texts about the data, and files of Windows and macOS.
SKIPPED = r".*\.md|(readme|licen[cs]e)(\.dataset|\.roboflow)?(\.txt|\.rst|\.pdf|\.html)?"
SKIPPED += r"|thumbs\.db|desktop\.ini|icon\r"
PAGE = "https://github.com/mlx-unpool/mlx-unpool/blob/main/docs/masks.md"
OPTIONS = "--data IMAGES MASKS --validation IMAGES MASKS --test IMAGES MASKS"
OTHER_TOOLS = f"Polygons and exports of other tools are not read: {PAGE} shows how to convert them."
ALL_FOLDERS = "images and masks, or train (and val, test) with these in each"
OF_SPLIT = "images and masks (without masks, move it away, and label its images with predict)"
ABOUT = (
    f"Give folders these names, or pass {OPTIONS}; if images and masks are in one folder, pass "
    f"--mask-ending, too. {OTHER_TOOLS}"
)
# What to do about a path that is not used, by its kind: see kind_of.
HINTS = {
    "split": "Call a folder for validation val and one for a test test; move others away.",
    "folder": (
        "If it is not for this training, move it away. If it is another split, put images and "
        f"masks into train, and call others val and test, or pass {OPTIONS}."
    ),
    "folder of files": f"If these are splits, pass {OPTIONS}; otherwise move their files up.",
    "class file": (
        "The class file is another one, or classes.txt in the folder of --data (of two, that of "
        "the masks): move it there, or compare both, and remove this one."
    ),
    "text": (
        "If a text lists classes, write them into classes.txt, with a line VALUE NAME for each "
        "value of the masks, such as '0 background'. If it lists the images of a split, move these "
        "and their masks to folders train, val and test. Only then move it away. For polygons see "
        f"{PAGE}."
    ),
    "export": f"{OTHER_TOOLS} Only then move it away.",
    "mask": (
        "Masks must be PNG, TIFF or BMP. Save GIF as PNG. JPEG has changed the values, also if you "
        "save it as PNG: export masks as PNG."
    ),
    "special": "It is a broken link, or neither a file nor a folder: remove it.",
    "other": (
        "Move images to images and masks to masks, in a format that is read, such as PNG; unpack "
        "archives; move everything else away."
    ),
}
KINDS = dict.fromkeys((".txt", ".csv", ".tsv", ".names"), "text")
KINDS |= dict.fromkeys((".json", ".jsonl", ".xml", ".yaml", ".yml"), "export")


class Pair(NamedTuple):
    """An image and its mask, or the folders of several."""

    image: Path
    mask: Path


def class_file_of(folders: Sequence[Path], classes: Path | None = None) -> Path:
    """The class file: the one that is given, or classes.txt in the last folder."""
    return classes or folders[-1] / CLASS_FILE


def find(
    folders: Sequence[Path],
    others: Mapping[str, Sequence[Path]],
    ending: str = "",
    classes: Path | None = None,
) -> dict[str, list[Pair]]:
    """The images and masks of each split, sorted by name.

    Args:
        folders: A folder with images/ and masks/, or with train/, val/ and test/, each of which
            has these; or two folders, that of the images and that of the masks.
        others: The same for other splits, by their names; each has one split.
        ending: What the names of masks have after those of their images. If it is given, images
            and masks can be in one folder.
        classes: The class file, which can be in a folder. Default: see :func:`class_file_of`.

    Raises:
        ValueError: If a folder contains anything else, or an image has no mask, or a mask no image.
    """
    search = Search(normalised(ending), class_file_of(folders, classes), class_file_of(folders))
    splits = search.splits_in(folders)
    for split, paths in others.items():
        if split in splits:
            used = splits[split].image.parent
            raise ValueError(f"{used} and --{split} are both for {split}: pass one.")
        (found, *further) = search.splits_in(paths).values()
        if further:
            raise ValueError(f"--{split} must be the folder of one split, unlike {paths[0]}.")
        splits[split] = found
    pairs = {split: search.pairs_in(each) for split, each in splits.items()}
    if len(folders) == 2 and "test" not in splits:
        names = {name_of(pair.image) for pair in pairs["train"]}
        check_lists(splits["train"], names)
    return pairs


@dataclass(frozen=True)
class Search:
    """Finds files. ``usual``: the class file that is used without --classes."""

    ending: str
    class_file: Path
    usual: Path

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
            return {"train": self.pair_in(folders[0], ALL_FOLDERS)}
        self.check_only(folders[0], [*SPLITS], "split")
        return {
            split: self.pair_in(inside[name], OF_SPLIT)
            for name, split in SPLITS.items()
            if name in inside
        }

    def pair_in(self, folder: Path, allowed: str) -> Pair:
        """The folders images/ and masks/ in a folder, or, with an ending, this folder for both."""
        inside = self.folders_in(folder)
        if self.ending and not {"images", "masks"} & inside.keys():
            return Pair(folder, folder)
        if not {"images", "masks"} <= inside.keys():
            has = cut([path.name for path in self.contents(folder)]) or "nothing"
            raise ValueError(
                f"{folder} must contain the folders {allowed}, but contains {has}. {ABOUT}"
            )
        self.check_only(folder, ["images", "masks"], "folder")
        return Pair(inside["images"], inside["masks"])

    def contents(self, folder: Path) -> list[Path]:
        """What is in a folder, sorted, without what is skipped.

        Raises:
            ValueError: If a name has characters that cannot be printed.
        """
        paths = sorted(path for path in folder.iterdir() if not self.is_skipped(path))
        for path in paths:
            if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in path.name):
                raise ValueError(f"{folder}: rename {path.name!r}, in UTF-8, in one line.")
        return paths

    def is_skipped(self, path: Path) -> bool:
        """Whether a path is hidden, a text about the data, or the class file."""
        name = path.name.lower()
        if name.startswith("."):
            return True
        if re.fullmatch(SKIPPED, name):
            return path.is_file()
        is_class_file = name in (CLASS_FILE, self.class_file.name.lower()) and path.is_file()
        return is_class_file and (self.is_used(path) or self.is_copy(path))

    def is_used(self, path: Path) -> bool:
        """Whether a file is the class file, or the one that --classes replaces."""
        files = [file for file in (self.class_file, self.usual) if file.is_file()]
        return any(path.samefile(file) for file in files)

    def is_copy(self, path: Path) -> bool:
        """Whether a file has the name of a class file and the same content."""
        if path.name != CLASS_FILE or not self.class_file.is_file():
            return False
        return path.read_bytes() == self.class_file.read_bytes()

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
        used = [path for name, path in self.folders_in(folder).items() if name in names]
        others = [path for path in self.contents(folder) if path not in used and not is_run(path)]
        refuse(others, f"{', '.join(names[:-1])} and {names[-1]}", kind)

    def pairs_in(self, folders: Pair) -> list[Pair]:
        """The images in one folder with their masks in another, or in the same."""
        images, masks = self.contents(folders.image), self.contents(folders.mask)
        if folders.image.samefile(folders.mask):
            if not self.ending:
                raise ValueError(f"{folders.image} has images and masks: pass --mask-ending, too.")
            masks = [path for path in images if name_of(path).endswith(self.ending)]
            images = sorted({*images} - {*masks})
        named = by_name(images, SUFFIXES, "images")
        drawn = by_name(masks, MASK_SUFFIXES, "masks")
        check_names(folders, named, drawn, self.ending)
        return [Pair(path, drawn[name + self.ending]) for name, path in named.items()]


def name_of(path: Path) -> str:
    """The name of a file without its suffix, normalised."""
    return normalised(path.stem)


def normalised(name: str) -> str:
    """A name with composed characters; file systems of Macs decompose them."""
    return unicodedata.normalize("NFC", name)


def by_name(paths: Sequence[Path], suffixes: Sequence[str], kind: str) -> dict[str, Path]:
    """Files by their names without suffix.

    Raises:
        ValueError: If a path is no file with one of the suffixes, or two names are equal.
    """
    wrong = [path for path in paths if path.suffix.lower() not in suffixes or not path.is_file()]
    refuse(wrong, kind, "folder of files")
    found: dict[str, Path] = {}
    for path in paths:
        if (first := found.setdefault(name_of(path), path)) != path:
            raise ValueError(f"{first} and {path.name} have the same name: rename or remove one.")
    return found


def check_names(
    folders: Pair, images: Mapping[str, Path], masks: Mapping[str, Path], ending: str
) -> None:
    """Raise ValueError unless each image has a mask, and each mask an image."""
    if not images or not masks:
        empty = f"{folders.mask} has no masks" if images else f"{folders.image} has no images"
        raise ValueError(f"{empty}.")
    wanted = {name + ending: name for name in images}
    missing = [wanted[name] for name in wanted.keys() - masks.keys()]
    surplus = sorted(masks.keys() - wanted.keys())
    if missing:
        name = min(missing)
        near = nearest_name(name, surplus or masks)
        raise ValueError(
            f"{len(missing)} of {len(images)} images have no mask: {images[name]} needs "
            f"{folders.mask / name}{ending}.png; the nearest name is {masks[near].name}. "
            f"{advice(name, near, images, masks)}"
        )
    if surplus:
        name = surplus[0].removesuffix(ending)
        near = nearest_name(name, images)
        raise ValueError(
            f"{len(surplus)} of {len(masks)} masks have no image: {masks[surplus[0]]} needs an "
            f"image such as {folders.image / name}.jpg; the nearest name is {images[near].name}. "
            "Rename or add the image, or move the mask away."
        )


def advice(name: str, near: str, images: Mapping[str, Path], masks: Mapping[str, Path]) -> str:
    """What to do about an image without a mask, if a mask has the nearest name."""
    ending = near.removeprefix(name)
    if ending != near and 2 * sum(each + ending in masks for each in images) > len(images):
        return f"Pass {shlex.quote(f'--mask-ending={ending}')}."
    return (
        "Rename masks to the names of their images, in upper and lower case, too (or these and "
        "--mask-ending). Move images away that are not for this training. An image without objects "
        f"needs a mask, too, all background. See {PAGE} for masks with other names."
    )


def check_lists(folders: Pair, images: set[str]) -> None:
    """Raise ValueError if a text beside two given folders lists some of the images."""
    for parent in sorted({folders.image.parent, folders.mask.parent}):
        for path in sorted(parent.iterdir()):
            is_text = KINDS.get(path.suffix.lower()) == "text" and path.is_file()
            if is_text and lists(path, images):
                raise ValueError(
                    f"{path} lists some of the images, but lists are not read. If it is a split, "
                    f"move its images and masks to two other folders, and pass {OPTIONS}. Only "
                    "then move it away."
                )


def lists(path: Path, images: set[str]) -> bool:
    """Whether one of the first lines of a text begins with the name or the path of an image.

    A line ``0 sky`` belongs to a table of classes, although an image can be called ``0``.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in itertools.islice(file, LISTED):
            word = re.split(r"[\s,;]+", line.strip())[0]
            is_class = re.match(r"\d+[\s,;]+\S", line.strip())
            if name_of(Path(word)) in images and not is_class:
                return True
    return False


def nearest_name(name: str, names: Iterable[str]) -> str:
    """The shortest of the names that contain a name, or the one that is most similar."""
    containing = [each for each in names if name.lower() in each.lower()]
    return min(containing, key=len, default="") or difflib.get_close_matches(name, names, 1, 0)[0]


def is_run(folder: Path) -> bool:
    """Whether a folder, or one in it, has results of train."""
    inside = folder.iterdir() if folder.is_dir() else ()
    return any(has_results(path) for path in (folder, *inside))


def has_results(folder: Path) -> bool:
    """Whether a folder has the checkpoint or the metrics of a run of train."""
    metrics = folder / "metrics.json"
    has_metrics = metrics.is_file() and b'"learning_rate"' in metrics.read_bytes()
    return has_metrics or (folder / "checkpoint.safetensors").is_file()


def refuse(paths: Sequence[Path], allowed: str, folder_kind: str) -> None:
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
    if path.name == CLASS_FILE:
        return "class file"
    if allowed == "masks" and path.suffix.lower() in SUFFIXES:
        return "mask"
    return KINDS.get(path.suffix.lower(), "other")
