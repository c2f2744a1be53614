"""Draw docs/hair.png, a photograph, the mask of its hair and two other colours, for the README.

    python docs/draw_hair.py photograph.png hair

The arguments are a square photograph, here the astronaut of scikit-image (NASA, public domain), of which the
upper half is shown, and the model: a folder or a name. Titles are readable on light and on dark pages.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from PIL import Image

sys.path.append(str(Path(__file__).parent.parent / "examples"))
from support.drawing import GREY, frame
from support.folders import read_image

import hair
import mlx_unpool_zoo as zoo
import numpy as np
from mlx_unpool_zoo.inputs import array_of

WIDTH, TOP = 828, 22  # of the figure and of the titles, in points
PART = np.s_[:280, 90:370]  # of the photograph


def main(path: Path, model: str) -> None:
    """Draw four pictures in a row, and save them with a palette of 256 colours."""
    picture = array_of(read_image(path), "RGB")
    mask = zoo.HairSegmenter.from_pretrained(model).mask(picture)
    brightness = hair.brightness_of(picture, mask)
    shown = {"photograph": picture, "hair, found by the network": (mask * 255).astype(np.uint8)}
    for name in ("purple", "copper"):
        shown[name] = hair.recoloured(picture, mask, hair.table_of(hair.colour_of(name), brightness))
    height = WIDTH / len(shown) + TOP
    figure, axes = plt.subplots(1, len(shown), figsize=(WIDTH / 72, height / 72))
    for axis, (title, image) in zip(axes, shown.items()):
        axis.imshow(image[PART], cmap="gray", vmin=0, vmax=255)
        axis.set_title(title, fontsize=14, color=GREY)
        frame(axis)
    figure.subplots_adjust(0.001, 0.005, 0.999, 1 - TOP / height, wspace=0.03)
    target = Path(__file__).with_name("hair.png")
    figure.savefig(target, dpi=108, transparent=True)
    with Image.open(target) as drawn:
        drawn.quantize(256).save(target, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
