"""Folders of images and masks."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

TRUTH = np.array([[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]], np.uint8)
BLOCKS = np.kron(TRUTH, np.ones((8, 8), np.uint8))  # 24 x 32
COLOURS = np.array([[0, 0, 0], [0, 160, 255], [255, 80, 0]], np.uint8)  # in the order of numbers
TURNED = Image.Exif()
TURNED[0x0112] = 6  # the camera was turned: shown after a quarter turn clockwise


def write(folder: Path, masks: Sequence | dict, names: str = "images masks", kind: str = "png") -> Path:
    """A folder with masks, arrays or pictures, named by their keys or numbers, and an image for each."""
    inside = [folder / name for name in names.split()]
    for path in inside:
        path.mkdir(parents=True, exist_ok=True)
    for number, (name, mask) in enumerate(masks.items() if isinstance(masks, dict) else enumerate(masks)):
        mask = mask if isinstance(mask, Image.Image) else Image.fromarray(np.asarray(mask))
        mask.save(inside[1] / f"{name}.{kind}")
        Image.new("RGB", mask.size, (40 * (number % 6), 250, 90)).save(inside[0] / f"{name}.png")
    return folder


def in_palette(numbers: np.ndarray, colours: np.ndarray = COLOURS) -> Image.Image:
    image = Image.fromarray(numbers)
    image.putpalette(colours.tobytes().ljust(768, b"\5"))
    return image


def error_of(call: Callable, *arguments: object, **options: object) -> str:
    """The message, of one line, of the ValueError that a call raises; nothing without one."""
    try:
        call(*arguments, **options)
    except ValueError as error:
        (line,) = str(error).splitlines()
        return line
    return ""
