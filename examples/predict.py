"""Label the pixels of pictures, draw each beside a map of its classes, and save its label map.

    python examples/predict.py demo/train/enet street.png --output classes.png

The model is a folder written by train.py or by the converter. Pictures may have any size. The label map of
street.png is classes-street.png: its pixels are class numbers, its palette has their colours.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

try:
    import mlx_unpool_zoo as zoo
    import numpy as np
    from PIL import Image
    from support.command_line import run_program
    from support.drawing import PICTURE_SUFFIXES, draw_rows
    from support.files import check_output_file, replacing
    from support.folders import colour_of, read_image, reduced
    from tqdm import tqdm
except ImportError as error:
    sys.exit(f'{error}. predict.py needs the extra [examples]: pip install ".[examples]"')

ROWS = 20  # of the picture


def model_of(path: Path) -> zoo.Model:
    """A model that labels pictures, with names and colours for its classes."""
    model = zoo.from_pretrained(path)
    channels, dims = model._inputs
    if not model.segments or channels not in (1, 3) or dims != 2 or model.medical:
        raise ValueError(
            f"{path} does not label pictures: it is a {model.model_type}, {dims}-D, for {channels} channels. "
            "For scans of a head see brain_segment.py."
        )
    if not model.about.classes:
        count = model.config["num_classes"]
        model.about.classes = [{"name": str(n)} | colour_of(n) for n in range(count)]
    return model


def main() -> int:
    """Run the program and return the exit status."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("model", type=Path, help="folder of a model")
    parser.add_argument("pictures", type=Path, nargs="+", help="picture files that Pillow reads")
    parser.add_argument("--output", type=Path, default=Path("classes.png"), help="picture to write")
    side = "reduce pictures to this shorter side (default: as in training, if the model says so)"
    parser.add_argument("--side", type=int, help=side)
    arguments = parser.parse_args()
    if arguments.side is not None and arguments.side < 8:
        parser.error("--side must be 8 or more")
    check_output_file("--output", arguments.output, PICTURE_SUFFIXES)
    stems = [path.stem for path in arguments.pictures]
    if len(set(stems)) < len(stems):
        raise ValueError(f"pictures must have different names, but got {', '.join(stems)}.")
    model = model_of(arguments.model)
    classes, side = model.about.classes, arguments.side or model.about.input.get("side")
    colours = np.array([entry["colour"] for entry in classes], np.uint8)
    columns: dict[str, list[np.ndarray]] = {"picture": [], "classes": [], "both": []}
    lines = []
    for path in tqdm(arguments.pictures, unit="picture", disable=None):
        original = read_image(path).convert("RGB" if model._inputs[0] == 3 else "L")
        image = original.resize(reduced(original.size, side)) if side else original
        numbers = model.predict(np.array(image))
        fractions = np.bincount(numbers.ravel(), minlength=len(classes)) / numbers.size
        largest = [n for n in np.argsort(-fractions)[:4] if fractions[n]]
        parts = [f"{classes[n]['name']} {fractions[n]:.0%}" for n in largest]
        labels = Image.fromarray(numbers).resize(original.size, Image.Resampling.NEAREST)
        if len(classes) <= 256:
            labels.putpalette(colours.tobytes())
        target = arguments.output.with_name(f"{arguments.output.stem}-{path.stem}.png")
        with replacing(target) as partial:
            labels.save(partial)
        lines.append(f"{path.name}: {', '.join(parts)}\nWrote {target}.")
        if len(lines) <= ROWS:
            picture = np.array(image.convert("RGB"))
            both = (0.4 * picture + 0.6 * colours[numbers]).astype(np.uint8)
            for column, array in zip(columns.values(), (picture, numbers, both), strict=True):
                column.append(array)
    draw_rows(columns, classes, arguments.output)
    print("\n".join(lines))
    first = f" with the first {ROWS} pictures" if len(lines) > ROWS else ""
    print(f"Wrote {arguments.output}{first}.")
    return 0


if __name__ == "__main__":
    run_program(main)
