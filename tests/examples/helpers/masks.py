"""Folders of images and masks."""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import pack
from zlib import compress, crc32

import numpy as np
from PIL import Image

TRUTH = np.array([[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]], np.uint8)
BLOCKS = np.kron(TRUTH, np.ones((8, 8), np.uint8))  # 24 x 32
COLOURS = np.array([[0, 0, 0], [0, 160, 255], [255, 80, 0]], np.uint8)  # in the order of numbers
TURNED = Image.Exif()
TURNED[0x0112] = 6  # the camera was turned: shown after a quarter turn clockwise


def put(folder: Path, files: dict) -> Path:
    """Files in a folder: pictures from arrays, JSON from objects, or what they contain."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, np.ndarray | Image.Image):
            content = content if isinstance(content, Image.Image) else Image.fromarray(content)
            content.save(path)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def pairs(
    masks: Sequence | dict,
    names: str = "images masks",
    kind: str = "png",
    classes: str | None = None,
) -> dict:
    """Files of masks (arrays or pictures, named by keys or numbers), their images and a class file.

    No two images are the same picture, also of calls with other ``names``. The default of
    ``classes`` calls each value by itself.
    """
    images, truths = names.split()
    files: dict = {}
    values: set = set()
    for number, (name, mask) in enumerate(
        masks.items() if isinstance(masks, dict) else enumerate(masks)
    ):
        mask = mask if isinstance(mask, Image.Image) else Image.fromarray(np.asarray(mask))
        files[f"{truths}/{name}.{kind}"] = mask
        colour = (40 * (number % 6), 250 - number // 6, crc32(names.encode()) % 200)
        files[f"{images}/{name}.png"] = Image.new("RGB", mask.size, colour)
        channels = np.array(mask).reshape(-1, len(mask.getbands())).astype(int)
        values |= set(map(tuple, np.unique(channels, axis=0).tolist()))
    files["classes.txt"] = "\n".join(map(line_of, sorted(values))) if classes is None else classes
    return files


def line_of(value: tuple) -> str:
    """A line of a class file for a number, or for a colour."""
    return (
        "#{:02x}{:02x}{:02x} {}-{}-{}".format(*value, *value)
        if len(value) == 3
        else f"{value[0]} {value[0]}"
    )


def write(folder: Path, *arguments: object, **options: object) -> Path:
    """A folder with the files of :func:`pairs`."""
    return put(folder, pairs(*arguments, **options))


def encoded(picture: np.ndarray, kind: str, **options: object) -> bytes:
    """The content of a picture file."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, kind, **options)
    return file.getvalue()


def png(values: np.ndarray, bits: int = 16) -> bytes:
    """A PNG of 2, 4 or 16 bits (H, W), or of 16 with alpha (H, W, 2) or in colour (H, W, 3)."""
    height, width, channels = np.atleast_3d(values).shape
    rows = values.astype(">u2").reshape(height, -1).view(np.uint8)
    if bits < 8:
        rows = np.packbits(values[..., None] >> np.arange(bits)[::-1] & 1).reshape(height, -1)
    parts = {
        b"IHDR": pack(">IIBBxxx", width, height, bits, {1: 0, 2: 4, 3: 2}[channels]),
        b"IDAT": compress(np.pad(rows, [(0, 0), (1, 0)]).tobytes()),
        b"IEND": b"",
    }
    content = b"\x89PNG\r\n\x1a\n"
    for name, part in parts.items():
        content += pack(">I", len(part)) + name + part + pack(">I", crc32(name + part))
    return content


def mapped(numbers: np.ndarray, colours: np.ndarray = COLOURS) -> Image.Image:
    """A picture with a palette."""
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
