"""Dye the hair in photographs or in a video.

    python examples/hair.py photo.jpg --colour purple --output dyed.png
    python examples/hair.py a.jpg b.jpg --colour "#2f6bd0" --output dyed.png     dyed-a.png and dyed-b.png
    python examples/hair.py film.mp4 --colour blond --output dyed.mp4            needs PyAV: pip install av

MediaPipe's network finds the hair. Its weights (0.8 MB, Apache-2.0) are downloaded from Google in the first
run. Shadows and highlights of the hair are kept. If a photograph cannot be read, or no hair is found in it,
the others are dyed, and the exit status is 1.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import tee
from pathlib import Path
from typing import Any

from support.command_line import run_program
from support.files import check_output_file, replacing
from support.folders import read_image

import mlx_unpool_zoo as zoo
import numpy as np
from mlx_unpool_zoo.model import array_of
from PIL import Image, ImageColor
from tqdm import tqdm

PHOTOGRAPHS = (".png", ".jpg", ".jpeg", ".webp", ".tiff")
VIDEOS = (".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi")
NATURAL = {"auburn": "#7a2e1d", "black": "#14100e", "blond": "#e8bf86", "brown": "#5b3a26",
           "copper": "#c05a21", "purple": "#7a2fd0", "pink": "#e0559a", "blue": "#2f6bd0"}  # fmt: skip
BRIGHTNESS = np.array([0.299, 0.587, 0.114], np.float32)


def colour_of(text: str) -> np.ndarray:
    """The red, green and blue of a colour, 0 to 1."""
    try:
        found = ImageColor.getrgb(NATURAL.get(text.lower(), text))[:3]
    except ValueError:
        named = ", ".join(NATURAL)
        raise ValueError(f"--colour must be {named}, a CSS colour or #rrggbb, but got {text!r}.") from None
    return np.array(found, np.float32) / 255


def dyed(picture: np.ndarray, mask: np.ndarray, colour: np.ndarray, strength: float = 0.9) -> np.ndarray:
    """A picture (H, W, 3), uint8, whose hair (H, W), 0 to 1, has another colour.

    As in the paper of the network, the brightness of a pixel is looked up in a table that depends on the mean
    brightness of the hair. The table goes from black through the colour to white, after a gamma correction
    that brings the mean brightness halfway to that of the colour. Shadows are more saturated than in a linear
    table, as in real hair.
    """
    share = np.clip((mask - 0.3) / 0.5, 0, 1)[..., None]  # none for pixels that are probably not hair
    if not share.any():
        return picture
    bright = (picture @ BRIGHTNESS).astype(np.uint8)
    mean = np.average(bright, weights=share[..., 0]).clip(5, 250) / 255
    own = (colour @ BRIGHTNESS).clip(0.02, 0.98)
    levels = np.linspace(1e-3, 1, 256, dtype=np.float32)[:, None]
    levels = levels ** (np.log((mean + own) / 2) / np.log(mean))
    saturated = colour.clip(0.02, 0.98) ** (np.log(levels) / np.log(own))
    dark = 0.65 * colour * levels / own + 0.35 * saturated
    light = 1 - (1 - colour) * (1 - levels) / (1 - own)
    table = 255 * np.where(levels < own, dark, light)
    found = picture + strength * share * (table[bright] - picture)
    return found.round().clip(0, 255).astype(np.uint8)


def outputs_of(paths: list[Path], output: Path) -> dict[Path, Path]:
    """The photographs, or a video, by the files to write."""
    videos = [path for path in paths if path.suffix.lower() in VIDEOS]
    if videos and len(paths) > 1:
        raise ValueError(f"a video must be the only input, but got {len(paths)} with {videos[0]}.")
    if videos and not find_spec("av"):
        raise ValueError("Not installed: PyAV, which reads and writes videos: pip install av")
    check_output_file("--output", output, (".mp4", ".mov", ".mkv") if videos else PHOTOGRAPHS)
    names = {output.with_name(f"{output.stem}-{path.stem}{output.suffix}"): path for path in paths}
    found = {output: paths[0]} if len(paths) == 1 else names
    if len(found) < len(paths):
        raise ValueError("photographs must have different names.")
    for path in found:
        if any(path.exists() and given.exists() and path.samefile(given) for given in paths):
            raise ValueError(f"--output would replace the input {path}: choose another name.")
    return found


def dye_photograph(model: zoo.HairSegmenter, path: Path, target: Path, colour: np.ndarray) -> str:
    """Write a photograph with dyed hair, and return a line about it."""
    image, start = read_image(path), time.perf_counter()
    picture = array_of(image, "RGB")
    mask = model.mask(picture)
    if mask.max() < 0.5:
        raise ValueError("no hair was found.")
    found = Image.fromarray(dyed(picture, mask, colour))
    seconds = time.perf_counter() - start
    with replacing(target) as partial:
        found.save(partial, quality=95, icc_profile=image.info.get("icc_profile"))
    return f"{path.name}: {(mask > 0.5).mean():.0%} hair, {seconds:.2f} s\nWrote {target}."


def dye_video(model: zoo.HairSegmenter, path: Path, target: Path, colour: np.ndarray) -> str:
    """Write a video with dyed hair and the sound of the original, and return a line about it."""
    import av

    def picture_of(frame: Any) -> np.ndarray:
        turned = np.rot90(frame.to_ndarray(format="rgb24"), frame.rotation // 90)
        return turned[: turned.shape[0] // 2 * 2, : turned.shape[1] // 2 * 2]  # even sizes, as H.264 needs

    path.open("rb").close()  # raises an error that gives the reason
    try:
        with av.open(path) as film, replacing(target) as partial, av.open(partial, "w") as made:
            stream, sound = next(iter(film.streams.video), None), film.streams.audio[:1]
            first = next(film.decode(stream), None) if stream else None
            if first is None:
                raise ValueError(f"{path} has no pictures.")
            film.seek(0)
            copies = {each: made.add_stream_from_template(each) for each in sound}
            written: Any = made.add_stream("libx264", rate=stream.average_rate, options={"crf": "18"})
            written.height, written.width = picture_of(first).shape[:2]
            written.pix_fmt, written.time_base = "yuv420p", stream.time_base

            def frames() -> Iterator[Any]:
                for packet in film.demux(stream, *sound):
                    if packet.stream is stream:
                        yield from packet.decode()
                    elif packet.dts is not None:
                        packet.stream = copies[packet.stream]
                        made.mux(packet)

            start, count = time.perf_counter(), 0
            times, shown = tee(frames())
            pictures, inputs = tee(picture_of(frame) for frame in shown)
            bar = tqdm(model.masks(inputs), total=stream.frames or None, unit="frame", disable=None)
            for mask, picture, frame in zip(bar, pictures, times):
                found = av.VideoFrame.from_ndarray(dyed(picture, mask, colour), format="rgb24")
                found.pts, found.time_base = frame.pts, frame.time_base
                made.mux(written.encode(found))
                count += 1
            made.mux(written.encode())
    except av.FFmpegError as error:
        raise ValueError(f"{path} cannot be dyed: {error.strerror}.") from None
    seconds = (time.perf_counter() - start) / max(count, 1)
    return f"{path.name}: {count} frames, {seconds:.2f} s per frame\nWrote {target}."


def main() -> int:
    """Run the program and return the exit status."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("inputs", type=Path, nargs="+", help="photographs that Pillow reads, or a video")
    parser.add_argument("--colour", default="purple", help="of CSS, #rrggbb or " + ", ".join(NATURAL))
    default = Path("dyed.png")
    parser.add_argument("--output", type=Path, default=default, help=f"file to write (default: {default})")
    parser.add_argument("--model", type=Path, help="folder of a model (default: Google's weights)")
    arguments = parser.parse_args()
    colour = colour_of(arguments.colour)
    outputs = outputs_of(arguments.inputs, arguments.output)
    own = arguments.model
    model = zoo.HairSegmenter.from_pretrained(own) if own else zoo.HairSegmenter.download()
    if arguments.inputs[0].suffix.lower() in VIDEOS:
        print(dye_video(model, arguments.inputs[0], arguments.output, colour))
        return 0
    failed = []
    for target, path in tqdm(outputs.items(), unit="photograph", disable=None):
        try:
            tqdm.write(dye_photograph(model, path, target, colour))
        except (ValueError, OSError) as error:
            failed.append(str(error) if str(path) in str(error) else f"{path}: {error}")
    if failed:
        print(
            *failed, f"{len(failed)} of {len(outputs)} photographs were not dyed.", sep="\n", file=sys.stderr
        )
    return 1 if failed else 0


if __name__ == "__main__":
    run_program(main)
