"""Recolour the hair in photographs or in a video.

    python examples/hair.py photo.jpg --colour copper                      writes demo/hair/photo.png
    python examples/hair.py a.jpg b.jpg --colour "#2f6bd0"                 demo/hair/a.png and demo/hair/b.png
    python examples/hair.py film.mp4 --colour blond --output dyed.mp4      needs PyAV: pip install av

MediaPipe's network finds the hair. Its weights (0.8 MB, Apache-2.0) are downloaded from Google in the first
run. Shadows and highlights of the hair are kept, and the sound of a video. If a photograph cannot be read, or
no hair is found in it, the others are recoloured, and the exit status is 1.
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
from mlx_unpool_zoo.inputs import array_of
from PIL import Image, ImageColor
from tqdm import tqdm

PHOTOGRAPHS = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff")  # that are written
VIDEOS = (".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi")
COLOURS = {"black": "#14100e", "brown": "#5b3a26", "auburn": "#7a2e1d", "copper": "#c05a21",
           "blond": "#e8bf86", "pink": "#e0559a", "purple": "#7a2fd0", "blue": "#2f6bd0"}  # fmt: skip
LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)


def colour_of(text: str) -> np.ndarray:
    """The red, green and blue of a colour, 0 to 1."""
    try:
        found = ImageColor.getrgb(COLOURS.get(text.lower(), text))[:3]
    except ValueError:
        names = ", ".join(COLOURS)
        raise ValueError(f"--colour must be {names}, a CSS colour or #rrggbb, but got {text!r}.") from None
    return np.array(found, np.float32) / 255


def share_of(mask: np.ndarray) -> np.ndarray:
    """How much of the colour a pixel gets, 0 to 1: nothing where it is probably not hair."""
    return np.clip((mask - 0.3) / 0.5, 0, 1)


def brightness_of(picture: np.ndarray, mask: np.ndarray) -> float | None:
    """The mean brightness of the hair, 0 to 1, or None if there is no hair."""
    step = max(1, min(mask.shape) // 512)
    share, few = share_of(mask[::step, ::step]), picture[::step, ::step]
    return float(np.average(few @ LUMINANCE, weights=share)) / 255 if share.any() else None


def table_of(colour: np.ndarray, brightness: float) -> np.ndarray:
    """The new colour (256, 3) of hair for each brightness of a pixel.

    As in the paper of the network, the table depends on the mean brightness of the hair. It goes from black
    through the colour to a light tint of it, after a gamma correction that brings the mean brightness nearer
    to that of the colour. Shadows are more saturated than in a linear table, as in real hair.
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
    for start in range(0, len(picture), 256):  # saves memory
        rows = picture[start : start + 256]
        share = 0.9 * share_of(mask[start : start + 256, :, None])
        colours = table[(rows @ LUMINANCE).astype(np.uint8)]
        found[start : start + 256] = (rows + share * (colours - rows)).round().clip(0, 255)
    return found


def outputs_of(paths: list[Path], output: Path | None) -> dict[Path, Path]:
    """The photographs, or a video, by the files to write."""
    is_video, single = any(path.suffix.lower() in VIDEOS for path in paths), len(paths) == 1
    if is_video and not single:
        raise ValueError(f"a video must be the only input, but got {', '.join(map(str, paths))}.")
    if is_video and not find_spec("av"):
        raise ValueError("Not installed: PyAV, which reads and writes videos: pip install av")
    if output is None:
        found = {Path("demo/hair", path.stem + (".mp4" if is_video else ".png")): path for path in paths}
    else:
        stems = [output.stem if single else f"{output.stem}-{path.stem}" for path in paths]
        found = {output.with_name(stem + output.suffix): path for stem, path in zip(stems, paths)}
    if len(found) < len(paths):
        raise ValueError(f"photographs must have different names, but got {', '.join(map(str, paths))}.")
    for target in found:
        check_output_file("--output", target, (".mp4", ".mov", ".mkv") if is_video else PHOTOGRAPHS)
        if any(target.exists() and path.exists() and path.samefile(target) for path in paths):
            raise ValueError(f"--output would replace the input {target}: choose another name.")
    return found


def recolour_photograph(model: zoo.HairSegmenter, path: Path, target: Path, colour: np.ndarray) -> str:
    """Write a photograph with another colour of the hair, and return a line about it."""
    image = read_image(path)
    picture, start = array_of(image, "RGB"), time.perf_counter()
    mask = model.mask(picture)
    seconds, brightness = time.perf_counter() - start, brightness_of(picture, mask)
    if brightness is None or mask.max() < 0.5:
        raise ValueError("no hair was found.")
    found = Image.fromarray(recoloured(picture, mask, table_of(colour, brightness)))
    profile = image.info.get("icc_profile") if image.mode in ("RGB", "RGBA", "P") else None
    with replacing(target) as partial:
        found.save(partial, quality=95, icc_profile=profile)
    return f"{path.name}: {(mask > 0.5).mean():.0%} hair, found in {seconds:.2f} s\nWrote {target}."


def recolour_video(model: zoo.HairSegmenter, path: Path, target: Path, colour: np.ndarray) -> str:
    """Write a video with another colour of the hair and the same sound, and return a line about it."""
    import av

    def picture_of(frame: Any) -> np.ndarray:
        upright = np.rot90(frame.to_ndarray(format="rgb24"), frame.rotation // 90)
        return upright[: len(upright) // 2 * 2, : len(upright[0]) // 2 * 2]  # even sizes, as H.264 needs

    def frames() -> Iterator[tuple[Any, np.ndarray]]:
        """The frames of the video; copies the sound."""
        for packet in film.demux(stream, *copies):
            if packet.stream is stream:
                yield from ((frame, picture_of(frame)) for frame in packet.decode())
            elif packet.dts is not None:
                packet.stream = copies[packet.stream]
                made.mux(packet)

    path.open("rb").close()  # raises an error that gives the reason
    brightness, seconds, count = None, 0.0, 0
    try:
        with av.open(path) as film:
            first = next(film.decode(video=0), None) if film.streams.video else None
        if first is None:
            raise ValueError(f"{path} has no pictures.")
        with av.open(path) as film, replacing(target) as partial, av.open(partial, "w") as made:
            stream = film.streams.video[0]
            copies = {each: made.add_stream_from_template(each) for each in film.streams.audio}
            rate = stream.average_rate or stream.guessed_rate
            written: Any = made.add_stream("libx264", rate=rate, options={"crf": "18"})
            written.height, written.width = picture_of(first).shape[:2]
            written.pix_fmt, written.codec_context.time_base = "yuv420p", stream.time_base
            for name in ("colorspace", "color_range", "color_primaries", "color_trc"):
                setattr(written.codec_context, name, getattr(first, name))
            shown, inputs = tee(frames())
            masks = model.masks(picture for _, picture in inputs)
            for frame, picture in tqdm(shown, total=stream.frames or None, unit="frame", disable=None):
                start = time.perf_counter()
                mask = next(masks)
                seconds, count = seconds + time.perf_counter() - start, count + 1
                if now := brightness_of(picture, mask):  # smooth, so that colours do not flicker
                    brightness = 0.9 * (brightness or now) + 0.1 * now
                    picture = recoloured(picture, mask, table_of(colour, brightness))
                image = av.VideoFrame.from_ndarray(picture, format="rgb24")
                spaces = {"dst_colorspace": frame.colorspace, "dst_color_range": frame.color_range}
                image = image.reformat(format="yuv420p", **spaces)
                image.pts, image.time_base = frame.pts, frame.time_base
                made.mux(written.encode(image))
            made.mux(written.encode())
    except av.FFmpegError as error:
        raise ValueError(f"{path} cannot be recoloured: {error.strerror}.") from None
    return f"{path.name}: {count} frames, hair found in {seconds / count:.3f} s per frame\nWrote {target}."


def main() -> int:
    """Run the program and return the exit status."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("inputs", type=Path, nargs="+", help="photographs that Pillow reads, or a video")
    parser.add_argument("--colour", default="purple", help="of CSS, #rrggbb or " + ", ".join(COLOURS))
    parser.add_argument("--output", type=Path, help="file to write (default: in demo/hair/)")
    parser.add_argument("--model", default="hair", help="folder of a model (default: Google's weights)")
    arguments = parser.parse_args()
    colour, outputs = colour_of(arguments.colour), outputs_of(arguments.inputs, arguments.output)
    model = zoo.HairSegmenter.from_pretrained(arguments.model)
    if arguments.inputs[0].suffix.lower() in VIDEOS:
        ((target, path),) = outputs.items()
        print(recolour_video(model, path, target, colour))
        return 0
    failed = []
    for target, path in tqdm(outputs.items(), unit="photograph", disable=None):
        try:
            tqdm.write(recolour_photograph(model, path, target, colour))
        except (ValueError, OSError) as error:
            failed.append(str(error) if str(path) in str(error) else f"{path}: {error}")
    if failed:
        failed.append(f"{len(failed)} of {len(outputs)} photographs were not recoloured.")
        print(*failed, sep="\n", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    run_program(main)
