"""Draw the pictures of the README: docs/hero.png and docs/hair.png.

    make demo && python docs/draw.py demo
    python docs/draw.py photograph.png hair

The first command draws two test scenes of the demo, chosen because together they have all four digits, with
closed outlines. The arguments of the second one are a square photograph, of which the upper half is shown
(here the astronaut of scikit-image: NASA, public domain), and a model. Titles are readable on light and on
dark pages, and on a telephone.
"""

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from PIL import Image

sys.path.append(str(Path(__file__).parent.parent / "examples"))
import hair
import mlx_unpool_zoo as zoo
import numpy as np
from common.digit_scenes import scenes_to_evaluate
from common.drawing import GREY, colour_map, frame
from common.images import read_image
from mlx_unpool_zoo.pictures import array_of

SCENES, PART = [5, 4], np.s_[:280, 90:370]  # the scenes of hero.png, and the part of the photograph


def draw(name: str, columns: dict[str, Any], width: int, font: int, top: float, **options: Any) -> None:
    """Draw columns of pictures with titles; the width and the height of the titles are in points."""
    rows = len(next(iter(columns.values())))
    height = rows * width / len(columns) + top
    size = (width / 72, height / 72)
    figure, axes = plt.subplots(rows, len(columns), figsize=size, squeeze=False)
    for column, (title, pictures) in zip(axes.T, columns.items()):
        column[0].set_title(title, fontsize=font, color=GREY)
        for axis, picture in zip(column, pictures):
            axis.imshow(picture, **options)
            frame(axis)
    edge = 1 / width  # one point for the frames
    figure.subplots_adjust(edge, edge, 1 - edge, 1 - top / height, wspace=0.04, hspace=0.04)
    target = Path(__file__).with_name(name)
    figure.savefig(target, dpi=108, transparent=True)
    with Image.open(target) as drawn:
        drawn.quantize(256).save(target, optimize=True)


def hero(folder: str) -> None:
    """Input, truth and the predictions of both decoders, one row per scene."""
    data = scenes_to_evaluate("test", max(SCENES) + 1)
    images, truth = zip(*(data.pairs[n] for n in SCENES))
    columns = {"input": images, "truth": truth}
    for title, run in (("with\nunpooling", "unpool-seed0"), ("with nearest\nneighbour", "nearest-seed0")):
        columns[title] = [*map(zoo.from_pretrained(Path(folder, run, "segnet")).predict, images)]
    options = {"cmap": colour_map(data.classes), "vmin": 0, "vmax": len(data.classes) - 1}
    draw("hero.png", columns, 480, 17, 46, interpolation="nearest", **options)


def recoloured(path: str, name: str) -> None:
    """A photograph, the mask of its hair and two other colours."""
    picture = array_of(read_image(Path(path)), "RGB")
    mask = zoo.HairSegmenter.from_pretrained(name).mask(picture)
    brightness = hair.brightness_of(picture, mask)
    shown = {"photograph": picture, "hair, found by the network": (mask * 255).astype(np.uint8)}
    for colour in ("purple", "copper"):
        table = hair.table_of(hair.colour_of(colour), brightness)
        shown[colour] = hair.recoloured(picture, mask, table)
    columns = {title: [image[PART]] for title, image in shown.items()}
    draw("hair.png", columns, 828, 14, 22, cmap="gray", vmin=0, vmax=255)


if __name__ == "__main__":
    draw_one = hero if len(sys.argv) == 2 else recoloured
    draw_one(*sys.argv[1:])
