"""Recolour the hair in photographs.

    python -m mlx_unpool_zoo hair                                 a portrait: runs/hair/portrait.png
    python -m mlx_unpool_zoo hair photo.jpg --colour copper       writes runs/hair/photo.png
    python -m mlx_unpool_zoo hair a.jpg b.jpg --colour "#2f6bd0"  runs/hair/a.png and runs/hair/b.png

The first run downloads the weights of MediaPipe's network (0.8 MB, Apache-2.0) from Google. If an input
cannot be read, or has no hair, the others are recoloured, and the exit status is 1.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

import mlx_unpool_zoo as zoo

from ..data.pictures import open_picture, read_picture
from ..files import replacing
from ..hair import squares_of
from ..hair_colour import COLOURS, brightness_of, colour_of, recoloured, table_of
from ..inputs import array_of
from .command_line import parser_of
from .outputs import check_inputs, check_output_file, refuse_inputs

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff")  # of the files that are written
PORTRAIT = Path(zoo.__file__).with_name("portrait.jpg")
ADVICE = "the network expects a face that fills much of the picture: crop it"


def outputs_of(paths: list[Path], output: Path) -> dict[Path, Path]:
    """The photographs by the files to write."""
    check_inputs(paths)
    if not output.suffix:
        found = {output / f"{path.stem}.png": path for path in paths}
    elif len(paths) == 1:
        found = {output: paths[0]}
    else:
        found = {output.with_stem(f"{output.stem}-{path.stem}"): path for path in paths}
    if len(found) < len(paths):
        raise ValueError(f"inputs must have different names, but got {', '.join(map(str, paths))}.")
    for target in found:
        check_output_file("--output", target, SUFFIXES)
        refuse_inputs(paths, [target])
    return found


def recolour(model: zoo.HairSegmenter, path: Path, target: Path, colour: np.ndarray) -> str:
    """Write a photograph with another colour of the hair, and return what to print about it."""
    image, _ = open_picture(path)
    is_clear = image.has_transparency_data and image.mode[0] not in "IF"
    picture = array_of(image, "RGB") if is_clear else read_picture(path, model)
    visible = array_of(on_white(image), "RGB") if is_clear else picture
    start = time.perf_counter()
    mask = model.mask(visible, squares=True)
    seconds = time.perf_counter() - start
    brightness = brightness_of(visible, mask)
    if brightness is None:
        raise ValueError(f"no hair was found; {ADVICE}.")

    found = Image.fromarray(recoloured(picture, mask, table_of(colour, brightness)))
    share = (mask > 0.5).mean()
    text = f"{path.name}: {share:.1%} hair, found in {seconds:.2f} s"
    _, squares = squares_of(*mask.shape)
    if len(squares) > 1:
        text += f", in {len(squares)} squares"
    if is_clear:
        found.putalpha(image.convert("RGBA").getchannel("A"))
        if target.suffix.lower() in (".jpg", ".jpeg"):
            found = on_white(found)
            text += "; transparent parts are white, because JPEG has none"
    if share < 0.005:
        text += f"\nNote: hardly any hair was found; {ADVICE}."

    profile = image.info.get("icc_profile") if image.mode in ("RGB", "RGBA", "P") else None
    with replacing(target) as partial:
        found.save(partial, quality=95, icc_profile=profile)
    return text


def on_white(image: Image.Image) -> Image.Image:
    """A picture with transparent parts as it looks on white."""
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA")).convert("RGB")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = parser_of("python -m mlx_unpool_zoo hair", __doc__)
    photographs = "photographs that Pillow reads (default: a portrait, NASA, public domain)"
    parser.add_argument("inputs", type=Path, nargs="*", default=[PORTRAIT], help=photographs)
    parser.add_argument(
        "--colour", "--color", default="purple", help="of CSS, #rrggbb or " + ", ".join(COLOURS)
    )
    default = Path("runs/hair")
    parser.add_argument("--output", type=Path, default=default, help=f"file or folder (default: {default})")
    parser.add_argument("--model", default="hair", help="folder of a model (default: hair, Google's weights)")
    arguments = parser.parse_args(words)
    colour, outputs = colour_of(arguments.colour), outputs_of(arguments.inputs, arguments.output)
    model = zoo.HairSegmenter.from_pretrained(arguments.model)

    failed = []
    for target, path in outputs.items():
        try:
            print(f"{recolour(model, path, target, colour)}\nWrote {target}.", flush=True)
        except (ValueError, OSError) as error:
            failed.append(str(error) if str(path) in str(error) else f"{path}: {error}")
    for text in failed:
        print(text, file=sys.stderr)
    return 1 if failed else 0
