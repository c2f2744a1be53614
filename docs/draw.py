"""Draw pictures of the README: docs/hair.png, docs/hair.webp and docs/edges.png.

    python docs/draw.py examples/zoo/mlx_unpool_zoo/page/portrait.jpg hair
    python docs/draw.py

The arguments of the first command are a square photograph, of which the upper half is shown (here the
astronaut of make hair: NASA, public domain), and a model. The second one draws the feature maps of the first
tour. Titles are readable on light and on dark pages, and on a telephone.
"""

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
from mlx_unpool_zoo import hair_colour as hair
from mlx_unpool_zoo.data.pictures import open_picture
from mlx_unpool_zoo.drawing import GREY, frame
from mlx_unpool_zoo.inputs import array_of
from PIL import Image

from mlx_unpool import MaxPool2d, MaxUnpool2d

PART = np.s_[:280, 90:370]  # of the photograph


def draw(name: str, columns: dict[str, Any], width: int, font: int, top: float, **options: Any) -> None:
    """Draw columns of pictures with titles; the width and the height of the titles are in points."""
    first = next(iter(columns.values()))
    rows, (tall, wide) = len(first), first[0].shape[:2]
    height = rows * width / len(columns) * tall / wide + top
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
        (drawn if name == "hair.png" else drawn.quantize(256)).save(target, optimize=True)


def recoloured(path: str, name: str) -> None:
    """A photograph, the mask of its hair and other colours; a film that changes from one to the next."""
    picture = array_of(open_picture(Path(path))[0], "RGB")
    mask = zoo.HairSegmenter.from_pretrained(name).mask(picture)
    brightness = hair.brightness_of(picture, mask)
    dyed = {
        colour: hair.recoloured(picture, mask, hair.table_of(hair.colour_of(colour), brightness))[PART]
        for colour in ("purple", "copper", "blue", "pink")
    }
    shown = {"photograph": picture[PART], "hair, found by the network": (mask[PART] * 255).astype(np.uint8)}
    columns = {title: [image] for title, image in [*shown.items(), *dyed.items()][:4]}
    draw("hair.png", columns, 828, 14, 22, cmap="gray", vmin=0, vmax=255)
    large = [Image.fromarray(image).resize((400, 400)) for image in (picture[PART], *dyed.values())]
    before, frames, times = large[0], [], []
    for old, new in zip(large, large[1:] + large[:1]):
        for edge in (0, *range(40, 400, 40)):  # a line moves from left to right
            right = old.copy()
            right.paste(new.crop((0, 0, edge, 400)))
            right.paste((255, 255, 255), (edge - 2, 0, edge, 400)) if edge else None
            frame = Image.new("RGB", (808, 400), (255, 255, 255))
            frame.paste(before)
            frame.paste(right, (408, 0))
            frames.append(frame)
            times.append(40 if edge else 900)
    options: dict = {"append_images": frames[1:], "duration": times, "loop": 0, "quality": 45, "method": 6}
    frames[0].save(Path(__file__).with_name("hair.webp"), save_all=True, **options)


def edges() -> None:
    """A feature map, unpooled and repeated, as the first tour computes them."""
    tour = Path(__file__).parent.parent / "examples" / "notebooks" / "first_tour.ipynb"
    pool = MaxPool2d(2, return_indices=True)
    names: dict[str, Any] = {"mx": mx, "np": np, "pool": pool, "unpool": MaxUnpool2d.from_pool(pool)}
    for cell in json.loads(tour.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and ("def edges_of" in source or "repeated = " in source):
            exec(source, names)
    titles = {"feature map": "x", "pooled and unpooled": "unpooled", "pooled and repeated": "repeated"}
    columns = {title: [np.cbrt(np.array(names[name][0, ..., 0]))] for title, name in titles.items()}
    draw("edges.png", columns, 828, 14, 22, cmap="gray", interpolation="nearest")


if __name__ == "__main__":
    recoloured(*sys.argv[1:]) if sys.argv[1:] else edges()
