"""Segments pictures: draws each beside its classes, with a legend.

    python examples/camvid_predict.py enet.safetensors street.png --output street-classes.png

The weights file is one that camvid_convert.py or camvid_train.py wrote. Pictures may have any size.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from common.camvid_models import load
from data.camvid import CLASS_NAMES, legend, read_picture, show_classes
from tqdm import tqdm


def draw(pictures: list[np.ndarray], classes: list[np.ndarray], path: Path) -> None:
    """A row for each picture: as it is, its classes, and both together."""
    figure, axes = plt.subplots(
        len(pictures),
        3,
        figsize=(12, 3.1 * len(pictures) + 0.8),
        squeeze=False,
        layout="constrained",
    )
    for row, picture, named in zip(axes, pictures, classes, strict=True):
        row[0].imshow(picture)
        show_classes(row[1], named)
        row[2].imshow(picture)
        show_classes(row[2], named, alpha=0.6)
        for axis in row:
            axis.set_axis_off()
    legend(figure)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> int:
    """Reads pictures, predicts, draws, and says what is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("weights", type=Path, help="weights file (.safetensors)")
    parser.add_argument("pictures", type=Path, nargs="+", help="any that Pillow reads")
    parser.add_argument("--output", type=Path, default=Path("classes.png"), help="the drawing")
    arguments = parser.parse_args()
    segmenter = load(arguments.weights)
    pictures = [read_picture(path) for path in arguments.pictures]
    classes = [segmenter.predict(picture[None])[0] for picture in tqdm(pictures, unit="picture")]
    draw(pictures, classes, arguments.output)
    for path, named in zip(arguments.pictures, classes, strict=True):
        shares = np.bincount(named.ravel(), minlength=len(CLASS_NAMES)) / named.size
        said = [f"{CLASS_NAMES[n]} {shares[n]:.0%}" for n in np.argsort(-shares)[:4] if shares[n]]
        print(f"{path.name}: {', '.join(said)}")
    print(f"In {arguments.output}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
