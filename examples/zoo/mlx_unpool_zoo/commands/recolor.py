"""Recolour the hair in photographs.

    python -m mlx_unpool_zoo hair                                a portrait: runs/hair/portrait.png
    python -m mlx_unpool_zoo hair photo.jpg --colour copper      writes runs/hair/photo.png
    python -m mlx_unpool_zoo hair a.jpg b.jpg --colour "#2f6bd0" runs/hair/a.png and runs/hair/b.png

The first run downloads the weights of MediaPipe's network (0.8 MB, Apache-2.0) from Google. If an
input cannot be read, has no hair or is an animation, the others are recoloured, and the exit status
is 1.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

import mlx_unpool_zoo as zoo

from ..data.pictures import SUFFIXES as PICTURES
from ..data.pictures import open_picture
from ..files import replacing
from ..hair import squares_of
from ..hair_colour import COLOURS, brightness_of, colour_of, recoloured, table_of
from .command_line import parser_of
from .outputs import check_inputs, check_output_file, refuse_inputs

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff")  # of the files that are written
PORTRAIT = Path(zoo.__file__).with_name("portrait.jpg")
ADVICE = "the network expects a face that fills much of the picture: crop it"


def outputs_of(paths: list[Path], output: Path) -> dict[Path, Path]:
    """The photographs by the files to write.

    An output is a file if its name ends as that of a picture, otherwise a folder.
    """
    check_inputs(paths)
    is_folder = output.suffix.lower() not in PICTURES
    if is_folder:
        targets = [output / f"{path.stem}.png" for path in paths]
    elif len(paths) == 1:
        targets = [output]
    else:
        targets = [output.with_stem(f"{output.stem}-{path.stem}") for path in paths]
    check_different(paths, targets)
    for target in targets:
        check_output_file("--output", target, SUFFIXES)
    refuse_inputs(paths, targets)
    if is_folder:
        refuse_photographs(paths, targets)
    return dict(zip(targets, paths, strict=True))


def check_different(paths: list[Path], targets: list[Path]) -> None:
    """Raise ValueError if files to write have the same name, except for capital letters."""
    if len({str(target).casefold() for target in targets}) < len(targets):
        names = ", ".join(map(str, paths))
        raise ValueError(f"inputs must have different names (without endings), but got {names}.")


def refuse_photographs(paths: list[Path], targets: list[Path]) -> None:
    """Raise ValueError if an output exists beside the inputs: it may be another photograph."""
    folders = {path.resolve().parent for path in paths}
    for target in targets:
        if target.exists() and target.resolve().parent in folders:
            raise ValueError(f"--output would replace {target}: choose another folder.")


def photograph_of(path: Path) -> Image.Image:
    """A photograph in 8 bits, turned as its EXIF data say: RGB, or RGBA with transparency.

    Its colour profile is in ``info["icc_profile"]`` if it applies to these colours.
    """
    image, facts = open_picture(path)
    if facts.pages > 1:
        frames = f"{facts.pages} frames"
        raise ValueError(f"{path} must be one photograph, but has {frames}: save one of them.")
    if image.mode[0] in "IF":  # colours of 16 bits are in 8 bits already
        raise ValueError(f"{path} has grey values of more than 8 bits: save it with 8 bits.")
    profile = image.info.get("icc_profile") if image.mode in ("RGB", "RGBA", "P") else None
    photograph = image.convert("RGBA" if image.has_transparency_data else "RGB")
    photograph.info["icc_profile"] = profile
    return photograph


def recolour(model: zoo.HairSegmenter, path: Path, target: Path, colour: np.ndarray) -> str:
    """Write a photograph with another colour of the hair, and return what to print about it."""
    photograph = photograph_of(path)
    visible = np.asarray(on_white(photograph))
    start = time.perf_counter()
    mask = model.mask(visible, squares=True)
    seconds = time.perf_counter() - start
    brightness = brightness_of(visible, mask)
    if brightness is None:
        raise ValueError(f"no hair was found; {ADVICE}.")

    share = (mask > 0.5).mean()
    text = f"{path.name}: {share:.1%} hair, found in {seconds:.2f} s"
    _, squares = squares_of(*mask.shape)
    if len(squares) > 1:
        text += f", in {len(squares)} squares"
    picture = np.asarray(photograph)[..., :3]
    result = Image.fromarray(recoloured(picture, mask, table_of(colour, brightness)))
    if photograph.mode == "RGBA":
        result.putalpha(photograph.getchannel("A"))
        if target.suffix.lower() in (".jpg", ".jpeg"):
            result = on_white(result)
            text += "; transparent parts are white, because JPEG has none"
    if share < 0.005:
        text += f"\nNote: hardly any hair was found; {ADVICE}."
    with replacing(target) as partial:
        result.save(partial, quality=95, icc_profile=photograph.info["icc_profile"])
    return text


def on_white(image: Image.Image) -> Image.Image:
    """An image (RGB or RGBA) as it looks on white, in RGB."""
    if image.mode == "RGB":
        return image
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = parser_of("python -m mlx_unpool_zoo hair", __doc__)
    photographs = "photographs that Pillow reads (default: a portrait, NASA, public domain)"
    parser.add_argument("inputs", type=Path, nargs="*", default=[PORTRAIT], help=photographs)
    parser.add_argument(
        "--colour", "--color", default="purple", help="of CSS, #rrggbb or " + ", ".join(COLOURS)
    )
    default = Path("runs/hair")
    output = f"folder, or a file that ends in {', '.join(SUFFIXES)} (default: {default})"
    parser.add_argument("--output", type=Path, default=default, help=output)
    weights = "folder of a converted model (default: hair, Google's weights)"
    parser.add_argument("--model", default="hair", help=weights)
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
