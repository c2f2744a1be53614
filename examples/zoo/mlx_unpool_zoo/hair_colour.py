"""Another colour for the hair in a picture, as in the paper of MediaPipe's network."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from PIL import ImageColor

COLOURS = {
    "black": "#14100e",
    "brown": "#5b3a26",
    "auburn": "#7a2e1d",
    "copper": "#c05a21",
    "blond": "#e8bf86",
    "pink": "#e0559a",
    "purple": "#7a2fd0",
    "blue": "#2f6bd0",
}
LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)


def colour_of(text: str) -> np.ndarray:
    """The red, green and blue of a colour, 0 to 1."""
    found: tuple[int, ...] = ()
    with suppress(ValueError):
        found = ImageColor.getrgb(COLOURS.get(text.lower(), text))
    if len(found) != 3:  # transparent colours have a fourth value
        names = ", ".join(COLOURS)
        raise ValueError(f"'colour' must be {names}, a CSS colour or #rrggbb, but got {text!r}.")
    return np.array([min(max(value, 0), 255) for value in found], np.float32) / 255


def brightness_of(picture: np.ndarray, mask: np.ndarray) -> float | None:
    """The mean brightness of the hair, 0 to 1, or None if there is no hair."""
    step = max(1, min(mask.shape) // 512)
    hair, few = mask[::step, ::step] > 0.5, picture[::step, ::step]
    return float((few[hair] @ LUMINANCE).mean()) / 255 if hair.any() else None


def table_of(colour: np.ndarray, brightness: float) -> np.ndarray:
    """The new colour (256, 3) of hair for each brightness of a pixel.

    As in the paper of the network, it depends on the mean brightness of the hair. It goes from
    black through the colour to a light tint of it, after a gamma correction that brings the mean
    nearer to the colour's. Shadows are more saturated than in a linear table, as in real hair.
    """
    colour, mean = colour.clip(0.02, 0.98), np.clip(brightness, 0.02, 0.98)
    own = colour @ LUMINANCE
    target = mean + (own - mean) * (0.5 if own > mean else 0.8)  # more would make dark hair flat
    levels = np.linspace(1e-3, 1, 256, dtype=np.float32)[:, None] ** (np.log(target) / np.log(mean))
    dark = 0.65 * colour * levels / own + 0.35 * colour ** (np.log(levels) / np.log(own))
    lightest = (1 + colour / colour.max()) / 2
    light = lightest - (lightest - colour) * (1 - levels) / (1 - own)
    return 255 * np.where(levels < own, dark, light)


def recoloured(picture: np.ndarray, mask: np.ndarray, table: np.ndarray) -> np.ndarray:
    """A picture (H, W, 3), uint8, with the colours of a table in its hair (H, W)."""
    found = picture.copy()
    # Row by row, which saves memory.
    for row, likely, before in zip(found, mask[..., None], picture):
        share = 0.9 * ((likely - 0.3) / 0.5).clip(0, 1)
        colours = table[(before @ LUMINANCE).astype(np.uint8)]
        row[:] = (before + share * (colours - before)).round().clip(0, 255)
    return found
