"""Which files are the images of each split, and which is the mask of each image."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

from .pictures import LOSSLESS, SPLITS, SUFFIXES, files_in, folders_in, pictures_in
from .polygons import Found, Shapes, foreign_in, jsons_in, only_coco, read_json, shapes_file, shapes_of
from .tables import TABLES

IMAGES = ("images", "image", "imgs", "img", "img_dir", "jpegimages", "leftimg8bit")
MASKS = [*("masks", "mask", "masks_machine", "segmentationclasspng", "segmentationclass")]
MASKS += [*("annotations", "gtfine", "labels", "ann_dir")]
BESIDE = ("annot", "_labels", "_masks")  # the masks of train/ in CamVid, in Kaggle's copy and others
WAYS = "It must have images/ and masks/, train/ and val/ with these, images and masks, or polygons (labelme, "
WAYS += "COCO, YOLO). Otherwise pass each split, --data A/train --validation A/val, or two folders, --data "
WAYS += "IMAGES MASKS."


class Source(NamedTuple):
    """The images of a split, and the folder of its masks, or a file of polygons; None if it has none."""

    images: Path
    masks: Path | None
    only: Path | None = None  # a list of the images that belong to the split


Sources = dict[str, Source]


def find(folders: Sequence[Path], ending: str | None = None) -> dict[str, Found]:
    """The files of each split in one folder, in the first of the ``LAYOUTS`` that it has, or in a pair.

    Raises:
        ValueError: If the folder has another layout, or an image has no mask.
    """
    read_json.cache_clear()  # files may have changed
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder.")
    if len(folders) > 2:
        raise ValueError(f"pass one folder or two, but got {', '.join(map(str, folders))}.")
    root = folders[0]
    if len(folders) == 2:
        sources = in_pair(*folders)
    else:
        sources = next(filter(None, (layout(root) for layout in LAYOUTS)), {})
    if not sources:
        inside = ", ".join(folders_in(root)) or "no folders"
        raise ValueError(f"{root} has {inside}. {foreign_in(root) or WAYS}")
    folders_of_masks = [each.masks for each in sources.values() if each.masks]
    shared = len({*folders_of_masks}) < len(folders_of_masks)
    found = {split: found_in(split, source, root, ending, shared) for split, source in sources.items()}
    read = {split: files for split, files in found.items() if files}
    notes = [f"{split} has no masks, and is not used." for split in found if split not in read]
    if len(folders) == 1:
        notes += [f"{path.name} has pictures, and is not used." for path in left_over(root, sources)]
    if len(read) > 1:
        differing = next(column for column in zip(*sources.values()) if len({*column}) == len(column))
        names = dict(zip(sources, differing))
        does = {"train": "trains", "validation": "validates", "test": "is the test at the end"}
        notes.insert(0, ", ".join(f"{names[split]} {does[split]}" for split in read) + ".")
    elif not sources["train"].only and (part := folders_in(sources["train"].images).get("train")):
        notes.append(f"{part} is a class or a group, as the folders beside it: all are for training.")
    read["train"].notes[:0] = notes
    return read


def left_over(root: Path, sources: Sources) -> list[Path]:
    """The folders in a folder that have pictures, of which no split uses any."""
    used = [path for source in sources.values() for path in source[:2] if path]
    if root in used:
        return []
    inside = folders_in(root).values()
    return [each for each in inside if pictures_in(each) and not any(each in (p, *p.parents) for p in used)]


# Layouts: each a function that returns the splits of a folder, or nothing if it has another layout.


def files_of_coco(root: Path) -> Sources | None:
    """Files such as annotations/instances_train2017.json and instances_val2017.json."""
    found: dict[str, list[Path]] = {}
    for path in jsons_in(root) if not is_drawn(pair_in(root)[1]) else ():
        words = re.findall(r"[a-z]+", path.stem.lower())
        if split := next((SPLITS[word] for word in words if word in SPLITS), None):
            found.setdefault(split, []).append(path)
    sources = {split: Source(root, only_coco(paths)) for split, paths in found.items()}
    return sources if "train" in sources and sources["train"].masks else None


def folders_of_splits(root: Path) -> Sources | None:
    """Folders train/, val/, ..., each with images/ and masks/, with both kinds, or beside trainannot/."""
    parts = {split: source_in(part) for split, part in splits_among(folders_in(root).values()).items()}
    if "train" not in parts or not masks_of(parts["train"], root):
        return None
    if pair_in(root)[1]:
        raise ValueError(f"{root} has masks of its own and in {parts['train'].images}. {command(parts)}")
    return parts


def folders_of_images_and_masks(root: Path) -> Sources | None:
    """Folders images/ and masks/, which may have the same folders of splits, or lists of names."""
    images, masks = pair_in(root)
    if not images or not (masks := masks or shapes_file(images) or shapes_file(root)):
        return None
    paths = [path for folder in (root / "ImageSets/Segmentation", root) for path in folder.glob("*.txt")]
    lists = splits_among(paths)
    if whole := [path for path in paths if path.stem.lower() == "trainval" and [*lists] == ["test"]]:
        lists = {"train": whole[0]} | lists
    if not lists or len(splits_among(folders_in(images).values())) > 1:
        return in_pair(images, masks)
    if "train" not in lists:
        given = ", ".join(map(str, lists.values()))
        raise ValueError(f"{root} has lists of images, {given}, but no train.txt.")
    return {split: Source(images, masks, path) for split, path in lists.items()}


def one_folder(root: Path) -> Sources | None:
    """Images beside their masks (a.png, a_mask.png), beside trainannot/, or with files of polygons."""
    source = source_in(root)
    return {"train": source} if files_in(root) or masks_of(source, root) else None


LAYOUTS = (files_of_coco, folders_of_splits, folders_of_images_and_masks, one_folder)


# Parts of them.


def in_pair(images: Path, masks: Path) -> Sources:
    """The splits in a folder of images and one of masks: their subfolders, or all is for training."""
    inside = [*folders_in(images).values()]
    parts, labels = splits_among(inside), splits_among(folders_in(masks).values() if masks.is_dir() else ())
    if not parts.keys() - {"train"}:  # a class may be called "train"
        return {"train": Source(images, masks)}
    sources = {s: Source(part, labels.get(s) if labels else masks) for s, part in parts.items()}
    if "train" not in parts or len(parts) < len(inside) or files_in(images):
        names = ", ".join(path.name for path in inside)
        for path in inside if "train" not in parts else ():
            if path not in parts.values():  # what --data names is for training, whatever it is called
                sources = {"train": Source(path, folders_in(masks).get(path.name.lower()))} | sources
        raise ValueError(f"{images} has {names}, of which some may be splits. {command(sources)}")
    return sources


def command(sources: Sources) -> str:
    """Which options name the splits."""
    first = "train" if "train" in sources else next(iter(sources))
    options = {"--data": sources[first]} | {f"--{s}": each for s, each in sources.items() if s != first}
    words = [" ".join(map(str, dict.fromkeys([o, *filter(None, s[:2])]))) for o, s in options.items()]
    return f"Pass the folders of each split: {' '.join(words)}."


def splits_among(paths: Iterable[Path]) -> dict[str, Path]:
    """The paths whose names mean a split, such as train, Train, train2017 or train_images."""
    found: dict[str, Path] = {}
    for path in sorted(paths):
        split = SPLITS.get(re.sub(r"(\d{4})?(_images)?$", "", path.stem.lower()))
        if split and found.setdefault(split, path) != path:
            raise ValueError(f"{found[split]} and {path.name} are both for {split}: pass one as --data.")
    return {split: found[split] for split in dict.fromkeys(SPLITS.values()) if split in found}


def source_in(folder: Path) -> Source:
    """The images of a split in its folder, with the masks in it or beside it."""
    images, masks = pair_in(folder)
    if images:
        return Source(images, masks or shapes_file(images) or shapes_file(folder))
    beside = [folder.with_name(folder.name.removesuffix("_images") + end) for end in BESIDE]
    return Source(folder, next((other for other in beside if other.is_dir()), folder))


def pair_in(folder: Path) -> tuple[Path | None, Path | None]:
    """The folders of images and of masks in a folder."""
    inside = folders_in(folder)
    images, masks = ([inside[name] for name in names if name in inside] for names in (IMAGES, MASKS))
    drawn = [path for path in masks if is_drawn(path)]
    if len(drawn) > 1:
        raise ValueError(f"{' and '.join(map(str, drawn))} have masks: pass --data {images[0]} {drawn[0]}.")
    return next(iter(images), None), next(iter(drawn + masks), None)


def is_drawn(folder: Path | None, images: Path | None = None) -> bool:
    """Whether a folder has pictures that may be masks, beside the images if they are in it, too."""
    if folder is None or folder.is_file():
        return False
    if folder != images:
        return any(path.suffix.lower() in LOSSLESS for path in pictures_in(folder))
    names = sorted(names_in(folder, LOSSLESS))
    lossy = len(files_in(folder)) > len(names) > 0
    return lossy or any(b.startswith(a) and not b[len(a)].isdigit() for a, b in pairwise(names))


def masks_of(source: Source, root: Path) -> Path | None:
    """The folder of masks if it has pictures, otherwise a file of polygons; None if a split has neither."""
    images, masks, _ = source
    if masks is None or masks.is_file() or is_drawn(masks, images):
        return masks
    lossy = masks if images != masks and pictures_in(masks) else None  # read_mask says why it is refused
    return shapes_file(masks) or shapes_file(images) or shapes_file(root) or lossy


def found_in(split: str, source: Source, root: Path, ending: str | None, shared: bool) -> Found | None:
    """The images of a split, with masks or shapes; None if it has none and is not for training."""
    images, masks, only = source
    masks = masks_of(source, root) or (masks or images if split == "train" else None)
    if not masks:
        return None
    if masks.is_file():
        found = shapes_of(masks, images, root, shared and not only)
    else:
        near = [masks.parent, masks, root, *([root.parent] if splits_among([root]) else [])]
        table = next((base / name for base in near for name in TABLES if (base / name).exists()), None)
        try:
            found = Found(files_of(images, masks, ending, shared), None, table)
        except ValueError as error:
            raise ValueError(f"{error} {foreign_in(root)}".strip()) from None
    if only:
        names, by_name = listed_in(only), {image.stem: (image, mask) for image, mask in found.files}
        missing = [name for name in names if name not in by_name]
        if missing == names and split != "train":
            return None
        if missing:
            raise ValueError(f"{only} lists {missing[0]}, which has no image or no mask.")
        if len(by_name) < len(found.files):
            raise ValueError(f"{only} is not clear: {images} has several images of one name.")
        found.files = [by_name[name] for name in names]
    return found


def listed_in(path: Path) -> list[str]:
    """The names of images in a list: a name, or a path with a suffix, at the start of each line."""
    names = [Path(line.split()[0]) for line in path.read_text().splitlines() if line.strip()]
    return [name.stem if name.suffix.lower() in SUFFIXES else name.name for name in names]


def files_of(
    images: Path, masks: Path, ending: str | None = None, shared: bool = False
) -> list[tuple[Path, Path | Shapes]]:
    """Pairs of an image and its mask, sorted by name. Both can be in one folder.

    A mask has the name of its image, or the part of it in which the images differ, with the same text
    before and after it in all masks::

        a.jpg with a_mask.png           b_leftImg8bit.png with b_gtFine_labelIds.png
        a_1.jpg with mask_1.png         21_training.tif with 21_manual1.gif

    If a folder has only subfolders, the files in them count. ``ending``: how the names of the masks end,
    needed if several ways fit. ``shared``: whether the folder has masks of images elsewhere.
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
    if alone := [name for name in named if name not in others and name.endswith(chosen[0]) and not shared]:
        raise ValueError(
            f"{len(alone)} of {len(named)} files have no image in {images}: {named[alone[0]]}, for example, "
            f"needs {Path(alone[0]).name.removesuffix(chosen[0])}.jpg or .png there."
        )
    return [(path, named[name]) for name, path in needed.items()]


def names_in(folder: Path, suffixes: Sequence[str]) -> dict[str, Path]:
    """The files of a folder, or of its subfolders if it has none, by name without suffix."""
    files, found = files_in(folder, suffixes), dict[str, Path]()
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
    shortest = min(map(len, words))
    after = min(same_at_start([row[::-1] for row in words]), shortest - 1)
    before = min(same_at_start(words), shortest - 1 - after)
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


def same_at_start(rows: Sequence[Sequence[str]]) -> int:
    """How many items at the start are the same in all rows."""
    return len([*takewhile(lambda column: len({*column}) == 1, zip(*rows))])
