"""Draw docs/hero.png, the picture of the README, with the networks of the demo.

    make demo
    python docs/draw_hero.py demo

The rows are two test scenes, chosen because together they have all four digits, with closed outlines. Titles
are readable on a light page, on a dark one and on a telephone.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib import colormaps
from matplotlib.colors import ListedColormap

sys.path.append(str(Path(__file__).parent.parent / "examples"))
from support.drawing import GREY, frame

import segnet_digits

SCENES, WIDTH, FONT = [4, 6], 480, 17
ROWS = len(SCENES)


def main(folder: Path) -> None:
    """Draw input, truth and the predictions of both decoders, one row per scene."""
    images, truth = (part[SCENES] for part in segnet_digits.evaluation_scenes("test", max(SCENES) + 1))
    columns = {"input": images, "truth": truth}
    for title, decoder in (("with\nunpooling", "unpool"), ("with nearest\nneighbour", "nearest")):
        model = segnet_digits.load(decoder, segnet_digits.weights_path(decoder, 0, folder))
        columns[title] = segnet_digits.predict(model, images)
    colours = ListedColormap(["#15151c", *map(colormaps["tab10"], range(len(segnet_digits.CLASS_NAMES) - 1))])
    side, top = WIDTH / len(columns), 2.7 * FONT
    figure, axes = plt.subplots(
        ROWS, len(columns), figsize=(WIDTH / 72, (ROWS * side + top) / 72), squeeze=False
    )
    for row, scene_axes in enumerate(axes):
        for axis, (title, pictures) in zip(scene_axes, columns.items()):
            last = segnet_digits.CLASSES - 1
            axis.imshow(pictures[row], interpolation="nearest", cmap=colours, vmin=0, vmax=last)
            frame(axis)
            if row == 0:
                axis.set_title(title, fontsize=FONT, color=GREY)
    height = ROWS * side + top
    # The right edge leaves one point for the frame of the last column.
    figure.subplots_adjust(0, 0, 1 - 1 / WIDTH, 1 - top / height, wspace=0.04, hspace=0.04)
    figure.savefig(Path(__file__).with_name("hero.png"), dpi=108, transparent=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
