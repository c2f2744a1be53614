"""Read images."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from mlx_unpool_zoo.pictures import array_of
from PIL import Image, ImageOps

# Reads HEIC files. pi_heif has no wheel for Python 3.15; that of pillow_heif contains a GPL encoder.
HEIF = "pi_heif" if sys.version_info < (3, 15) else "pillow_heif"
if find_spec(HEIF):
    import_module(HEIF).register_heif_opener()

LOSSLESS = (".png", ".tif", ".tiff", ".bmp", ".gif", ".ppm", ".pgm", ".pbm", ".pnm")
SUFFIXES = (*LOSSLESS, ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".heic", ".heif", ".avif", ".jp2")
HEIC = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")  # brands of such files


def files_in(folder: Path, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """The files of a folder with these suffixes, sorted."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in suffixes and p.name[0] != ".")


def read_image(path: Path) -> Image.Image:
    """Read an image, rotated as in its EXIF data.

    ``info`` has the ``format``, the mode in the file as ``raw`` and the number of ``pages``.

    Raises:
        ValueError: If it is damaged, is no image or is very large.
    """
    with path.open("rb") as file:  # raises an error that gives the reason
        start = file.read(64)
    try:
        with Image.open(path) as image:
            raw = image.tile[0][3] if image.tile else ""
            image.info["raw"] = raw if isinstance(raw, str) else str(raw[0])
            image.info["format"], image.info["pages"] = image.format, getattr(image, "n_frames", 1)
            return ImageOps.exif_transpose(image)
    except Exception as error:  # formats and damaged files raise many kinds of errors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
    if start[4:8] == b"ftyp" and b"avif" not in start and any(brand in start[8:] for brand in HEIC):
        if "HEIF" in Image.OPEN:
            raise ValueError(f"{path} is a damaged HEIC file: {reason}")
        convert = f"sips -s format jpeg '{path.name}' --out '{path.stem}.jpg'"
        raise ValueError(f"{path} is a HEIC file: pip install {HEIF}, or convert it (on a Mac: {convert}).")
    raise ValueError(f"{path} cannot be read as an image: {reason}")


def read_picture(path: Path, white: float | None = None) -> np.ndarray:
    """Read an image as :meth:`Model.preprocess` does: uint8 (H, W, 3)."""
    image = read_image(path)
    try:
        return array_of(image, "RGB", white)
    except ValueError as error:  # its values, or a mode that cannot be converted
        raise ValueError(f"{path}: {error}") from None


def white_level_of(files: Sequence[Path]) -> float | None:
    """The largest value of the images of more than 8 bits, rounded up to a power of 2; None without any."""
    largest = []
    for path in files:
        with contextlib.suppress(Exception), Image.open(path) as image:  # damaged files are reported later
            if image.mode[0] in "IF":
                largest.append(np.max(image).item())
    finite = [value for value in largest if 1 < value < math.inf]
    return 2.0 ** math.ceil(math.log2(max(finite, default=1))) if largest else None
