"""Images and masks: a class for every pixel, read from folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from mlx_unpool_zoo import CAMVID
from mlx_unpool_zoo.messages import cut
from mlx_unpool_zoo.pictures import reduced
from PIL import Image
from tqdm import tqdm

from common.classes import IGNORED, TABLES, read_table
from common.classes import table_of as table_of
from common.images import files_in, read_picture, white_level_of
from common.images import read_image as read_image
from common.masks import Seen, files_of, meaning_of, read_mask
from common.pictures import Pictures

ENDINGS = ("annot", "_labels")  # of the folder of masks beside train/ in CamVid, and in Kaggle's copy


def read_folders(
    folders: Sequence[Path],
    side: int,
    classes: Path | None = None,
    like: Pictures | None = None,
    mask_ending: str | None = None,
) -> Pictures:
    """Read images and their masks, and hold them in memory.

    Args:
        folders: A folder in one of the layouts of :func:`folders_of`, or the folders of images and masks.
        side: Larger images are reduced, so that their shorter side has this many pixels.
        classes: A file with the classes; see :mod:`common.classes`. Default: one with a name in ``TABLES``
            beside the masks or their folder, the classes of CamVid for its layout, or the numbers or colours
            that occur in the masks.
        like: Images of another split, whose classes, meaning of masks and white level are used.
        mask_ending: See :func:`common.masks.files_of`.

    Raises:
        ValueError: If an image has no mask, a file cannot be read, or a mask does not fit.
    """
    images, masks = folders_of(folders)
    files = files_of(images, masks, mask_ending)
    white = like.white_level if like else white_level_of([image for image, _ in files])
    beside = (folder / name for folder in (masks.parent, masks) for name in TABLES)
    path = None if like else classes or next((file for file in beside if file.exists()), None)
    if like and like.meaning:
        meaning = like.meaning
    else:
        seen, bar = Seen(), {"unit": "mask", "leave": False, "disable": None}
        for _, mask_file in tqdm(files, "Reading masks", **bar):
            seen.add(mask_file)
        table = read_table(path) if path else CAMVID if masks.name == "trainannot" else None
        try:
            meaning = meaning_of(seen, table)
        except ValueError as error:
            raise ValueError(f"{path}: {error}" if path else str(error)) from None
    if not 2 <= len(meaning.classes) < IGNORED:
        found = len(meaning.classes)
        raise ValueError(f"{path or masks} must have 2 to {IGNORED - 1} classes, but has {found}.")
    known, pairs = meaning.indices(), []
    for picture_file, mask_file in tqdm(files, "Reading", unit="image", leave=False, disable=None):
        picture, mask = read_picture(picture_file, white), read_mask(mask_file, meaning.in_colours)
        if mask.shape != picture.shape[:2]:
            raise ValueError(
                f"{mask_file} must have the size of its image (rotated as in its EXIF data), "
                f"{picture.shape[1::-1]}, but has {mask.shape[::-1]}."
            )
        picture = reduced(picture, side)
        numbers, nearest = Image.fromarray(mask.astype(np.int32)), Image.Resampling.NEAREST
        mask = np.array(numbers.resize(picture.shape[1::-1], nearest))
        values, places = np.unique(mask, return_inverse=True)
        if unknown := [value for value in values.tolist() if value not in known]:
            wrong = [f"#{value:06x}" if meaning.in_colours else str(value) for value in unknown]
            names = cut([entry["name"] for entry in meaning.classes])
            hint = "" if meaning.in_colours else f" A line '{wrong[0]} void 0 0 0' in a table ignores them."
            raise ValueError(f"{mask_file} has values without a class: {cut(wrong)}. Classes: {names}.{hint}")
        truth = np.array([known[value] for value in values.tolist()], np.uint8)
        pairs.append((picture, truth[places].reshape(mask.shape)))
    kind = "colours" if meaning.in_colours else "numbers"
    table_text = path or ("those of CamVid" if masks.name == "trainannot" else "those in the masks")
    source = f"{files[0][0]} has the mask {files[0][1]}, and so on. Masks have {kind}. Classes: {table_text}."
    return Pictures(pairs, meaning.classes, white, meaning, source)


def folders_of(folders: Sequence[Path], split: str = "train") -> tuple[Path, Path]:
    """The folders of pictures and of masks."""
    if len(folders) > 2:
        raise ValueError(f"pass one folder or two, but got {', '.join(map(str, folders))}.")
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder.")
    if len(folders) == 2:
        return folders[0], folders[1]
    layouts = [("images", "masks"), ("img", "masks_machine")]  # the second one: Supervisely
    layouts += [(split, split + end) for end in ENDINGS]
    layouts += [("JPEGImages", f"SegmentationClass{end}") for end in ("PNG", "")]  # labelme; CVAT, VOC
    for images, masks in layouts:
        if (folder / images).is_dir() and (folder / masks).is_dir():
            return folder / images, folder / masks
    if files_in(folder):  # Roboflow: a.jpg with a_mask.png
        return folder, folder
    raise ValueError(
        f"{folder} must contain images/ and masks/, {split}/ and {split}annot/, JPEGImages/ and "
        "SegmentationClass/, or images and masks themselves."
    )
