"""Recolour the hair in photographs or in a video.

    python -m mlx_unpool_zoo hair                                 a portrait: runs/hair/portrait.png
    python -m mlx_unpool_zoo hair photo.jpg --colour copper       writes runs/hair/photo.png
    python -m mlx_unpool_zoo hair a.jpg b.jpg --colour "#2f6bd0"  runs/hair/a.png and runs/hair/b.png
    python -m mlx_unpool_zoo hair film.mp4 --output dyed.mp4      needs PyAV: pip install av

The first run downloads the weights of MediaPipe's network (0.8 MB, Apache-2.0) from Google. If an input
cannot be read, or has no hair, the others are recoloured, and the exit status is 1.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

import mlx_unpool_zoo as zoo

from ..data.pictures import open_picture, read_picture
from ..files import replacing
from ..hair import squares_of
from ..hair_colour import COLOURS, brightness_of, colour_of, hint_of, recoloured, smoothed, table_of
from ..inputs import array_of
from .command_line import parser_of
from .outputs import check_inputs, check_output_file, refuse_inputs

PHOTOGRAPHS = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff")  # that are written
VIDEOS = (".mp4", ".mov", ".mkv", ".m4v", ".webm", ".avi")  # the first three are also written
PORTRAIT = Path(zoo.__file__).with_name("page") / "portrait.jpg"
SPACES = ("colorspace", "color_range", "color_primaries", "color_trc")  # of the frames of a video


def outputs_of(paths: list[Path], output: Path) -> dict[Path, Path]:
    """The photographs and videos by the files to write."""
    check_inputs(paths)
    films = [path for path in paths if path.suffix.lower() in VIDEOS]
    if films and not find_spec("av"):
        raise ValueError("Not installed: PyAV, which reads and writes videos: pip install av")
    if not output.suffix:
        names = [path.stem + (".mp4" if path in films else ".png") for path in paths]
        found = {output / name: path for name, path in zip(names, paths)}
    else:
        stems = [output.stem + f"-{path.stem}" * (len(paths) > 1) for path in paths]
        found = {output.with_stem(stem): path for stem, path in zip(stems, paths)}
    if len(found) < len(paths):
        raise ValueError(f"inputs must have different names, but got {', '.join(map(str, paths))}.")
    for target, path in found.items():
        check_output_file("--output", target, VIDEOS[:3] if path in films else PHOTOGRAPHS)
        refuse_inputs(paths, [target])
    return found


def recolour_photograph(model: zoo.HairSegmenter, path: Path, target: Path, colour: np.ndarray) -> str:
    """Write a photograph with another colour of the hair, and return a line about it."""
    (image, _), remark = open_picture(path), ""
    is_clear = image.has_transparency_data and image.mode[0] not in "IF"
    picture = array_of(image, "RGB") if is_clear else read_picture(path, model)
    visible, start = array_of(on_white(image), "RGB") if is_clear else picture, time.perf_counter()
    mask = model.mask(visible, squares=True)
    seconds, brightness = time.perf_counter() - start, brightness_of(visible, mask)
    if brightness is None:
        raise ValueError(f"{hint_of(0)}.")
    found = Image.fromarray(recoloured(picture, mask, table_of(colour, brightness)))
    if is_clear:
        found.putalpha(image.convert("RGBA").getchannel("A"))
        if target.suffix.lower() in (".jpg", ".jpeg"):
            found, remark = on_white(found), "; transparent parts are white, because JPEG has none"
    profile = image.info.get("icc_profile") if image.mode in ("RGB", "RGBA", "P") else None
    with replacing(target) as partial:
        found.save(partial, quality=95, icc_profile=profile)
    share = (mask > 0.5).mean()
    return f"{path.name}: {share:.1%} hair, found in {seconds:.2f} s{squares(mask)}{remark}{hint(share)}"


def on_white(image: Image.Image) -> Image.Image:
    """A picture with transparent parts as it looks on white."""
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA")).convert("RGB")


def squares(mask: np.ndarray) -> str:
    """How often the network ran for a wide or tall picture, for a line about it."""
    count = len(squares_of(*mask.shape)[1])
    return f", in {count} squares" * (count > 1)


def hint(share: float) -> str:
    """One more line if there was hardly any hair."""
    return f"\nNote: {found}." if (found := hint_of(share)) else ""


def recolour_video(model: zoo.HairSegmenter, path: Path, target: Path, colour: np.ndarray) -> str:
    """Write a video with another colour of the hair and the same sound, and return a line about it."""
    import av

    def picture_of(frame: Any) -> np.ndarray:  # upright, with even sizes, as H.264 needs
        picture = np.rot90(frame.to_ndarray(format="rgb24"), frame.rotation // 90)
        return picture[: len(picture) // 2 * 2, : len(picture[0]) // 2 * 2]

    def frames() -> Iterator[tuple[Any, np.ndarray]]:
        """The frames of the video; copies the sound."""
        for packet in film.demux(stream, *copies):
            if packet.stream is stream:
                yield from ((frame, picture_of(frame)) for frame in packet.decode())
            elif packet.dts is not None:
                packet.stream = copies[packet.stream]
                made.mux(packet)

    brightness, seconds, count, share = None, 0.0, 0, 0.0
    before: list[Any] = []
    try:
        with av.open(path) as film:
            first = next(film.decode(video=0), None) if film.streams.video else None
        if first is None:
            raise ValueError(f"{path} has no pictures.")
        with av.open(path) as film, replacing(target) as partial, av.open(partial, "w") as made:
            stream, (height, width, _) = film.streams.video[0], picture_of(first).shape
            copies: dict[Any, Any] = {
                each: made.add_stream_from_template(each) for each in film.streams.audio
            }
            settings = {"height": height, "width": width, "time_base": stream.time_base, "pix_fmt": "yuv420p"}
            settings |= {name: getattr(first, name) for name in SPACES}
            written = made.add_stream("libx264", stream.average_rate, {"crf": "18"}, **settings)
            for frame, picture in tqdm(frames(), total=stream.frames or None, unit="frame", disable=None):
                start, count = time.perf_counter(), count + 1
                mask, before = model.next_mask(picture, before, squares=True)
                seconds += time.perf_counter() - start
                share += (mask > 0.5).mean()
                now = brightness_of(picture, mask)
                if now is not None:
                    brightness = smoothed(brightness, now)
                    picture = recoloured(picture, mask, table_of(colour, brightness))
                same = {"dst_colorspace": frame.colorspace, "dst_color_range": frame.color_range}
                image = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuv420p", **same)
                image.pts, image.time_base = frame.pts, frame.time_base
                made.mux(written.encode(image))
            made.mux(written.encode())
            if brightness is None:
                raise ValueError(f"{hint_of(0)}.")
    except av.FFmpegError as error:
        raise ValueError(f"{path} cannot be recoloured: {error.strerror}.") from None
    rest = f"{squares(mask)}{hint(share / count)}"
    return f"{path.name}: {count} frames, hair found in {seconds / count:.3f} s per frame{rest}"


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = parser_of("python -m mlx_unpool_zoo hair", __doc__)
    said = "photographs that Pillow reads, and videos (default: a portrait, NASA, public domain)"
    parser.add_argument("inputs", type=Path, nargs="*", default=[PORTRAIT], help=said)
    parser.add_argument(
        "--colour", "--color", default="purple", help="of CSS, #rrggbb or " + ", ".join(COLOURS)
    )
    default = Path("runs/hair")
    parser.add_argument("--output", type=Path, default=default, help=f"file or folder (default: {default})")
    parser.add_argument("--model", default="hair", help="folder of a model (default: hair, Google's weights)")
    arguments = parser.parse_args(words)
    colour, outputs = colour_of(arguments.colour), outputs_of(arguments.inputs, arguments.output)
    model, failed = zoo.HairSegmenter.from_pretrained(arguments.model), []
    for target, path in outputs.items():
        recolour = recolour_video if path.suffix.lower() in VIDEOS else recolour_photograph
        try:
            print(f"{recolour(model, path, target, colour)}\nWrote {target}.", flush=True)
        except (ValueError, OSError) as error:
            failed.append(str(error) if str(path) in str(error) else f"{path}: {error}")
    print(*failed, sep="\n", end="\n" * bool(failed), file=sys.stderr)
    return 1 if failed else 0
