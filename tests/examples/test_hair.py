"""Hair: TFLite files, masks, the published weights against MediaPipe, and the program."""

import os
import random
import re
import struct
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path

import av
import hair
import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
import tflite
from faults import check_faults
from mlx_unpool_zoo.hair import stretched
from mlx_unpool_zoo.tflite import read_tflite
from PIL import Image, ImageCms
from programs import ROOT, call, environment
from small_models import randomised, small_model
from tflite_files import OPERATORS, constants_of, tflite_of

# The published file, pictures, and the confidences of MediaPipe for them.
HAIR = Path(os.environ.get("HAIR", ROOT.parent / "shared" / "hair"))
PICTURE = np.random.default_rng(0).integers(0, 256, (8, 10, 3), np.uint8).repeat(8, 0).repeat(8, 1)

# Files.


def test_a_tflite_file_becomes_the_model_that_it_was(tmp_path):
    model, x = small_model("hair")
    path = tmp_path / "hair.tflite"
    path.write_bytes(tflite_of(constants_of(model)))
    said = call("mlx_unpool_zoo.convert", "hair", path, tmp_path / "a", "--licence", "apache-2.0").stdout
    assert said == f"{tmp_path / 'a'}: 181,506 parameters\n"
    again = zoo.from_pretrained(tmp_path / "a")
    assert mx.array_equal(again(x), model(x))
    assert [entry["name"] for entry in again.about.classes] == ["background", "hair"]


def test_damaged_and_foreign_files_are_refused(tmp_path):
    constants, path, damage = constants_of(small_model("hair")[0]), tmp_path / "hair.tflite", random.Random(0)
    whole, (first, *_) = tflite_of(constants), constants
    fewer = {name: value for name, value in constants.items() if name != "conv2d_9/Bias"}
    long = {"x" * 200_000 + str(n): np.zeros(1, np.float32) for n in range(60)}
    refusals = {
        "it is not a TFLite file": b"PK\x03\x04" * 9,
        "missing: encoder.0.2.branch.0.b": tflite_of(fewer),
        "not used: more": tflite_of(constants | {"more": np.zeros(3, np.float32)}),
        r"shape .* instead of .*: stem.0.weight": tflite_of(constants | {first: constants[first][:, :1]}),
        "must be finite, .*stem": tflite_of(constants | {first: constants[first] * np.nan}),
        "neither float32 nor float16": tflite_of(constants, kind=tflite.TensorType.INT8),
        "10 million characters": tflite_of(long),
        "not MediaPipe's network: .* numbers of ADD.$": tflite_of(constants, OPERATORS | {"ADD": 29}),
        "numbers of MaxUnpooling2D, Theirs.$": tflite_of(
            constants, {name.replace("MaxUnpooling2D", "Theirs"): n for name, n in OPERATORS.items()}
        ),
    }
    for says, contents in refusals.items():
        path.write_bytes(contents)
        with pytest.raises(ValueError, match=says) as error:
            zoo.from_pytorch("hair", read_tflite(path))
        assert len(str(error.value).splitlines()) == 1
    for length in damage.choices(range(len(whole)), k=20):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"TFLite file"):
            read_tflite(path)
    refused = []
    for _ in range(100):  # in the part of the file that has no weights
        changed = bytearray(whole)
        changed[damage.randrange(8, 12_000)] = damage.randrange(256)
        path.write_bytes(changed)
        try:
            read_tflite(path)
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) > 30
    assert not any("\n" in message for message in refused)


# Masks.


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        (
            [[0, 63, 252], [55, 240, 39]],
            [[0, 6, 42, 63, 112, 252], [0, 5, 42, 63, 112, 252], [16, 24, 81, 113, 133, 192],
             [28, 39, 111, 152, 150, 145], [37, 50, 135, 182, 163, 108], [55, 71, 180, 239, 187, 39]],
        ),
        (
            np.add.outer(*[(np.arange(n) ** 2 * 3 % 251).astype(np.uint8) for n in (600, 700)]),
            [[1, 74, 129, 62, 120, 167], [140, 197, 163, 153, 160, 119], [69, 133, 140, 129, 89, 135],
             [183, 52, 54, 147, 180, 151], [195, 135, 123, 70, 116, 131], [105, 164, 143, 165, 125, 111]],
        ),
    ],
    ids=["enlarged", "reduced"],
)  # fmt: skip
def test_pictures_are_stretched_to_512_x_512_as_by_opencv(picture, expected):
    """Expected: cv2.resize of OpenCV 4.11, INTER_LINEAR and INTER_AREA."""
    some = [0, 100, 200, 256, 300, 511]
    found = stretched(np.stack([np.array(picture, np.uint8)] * 3, axis=-1))
    assert found[np.ix_(some, some)][..., 0].tolist() == expected


def test_a_mask_has_the_size_of_its_image_and_depends_on_the_mask_before():
    model = randomised(small_model("hair")[0], all_weights=True)
    first, second = model.masks([PICTURE, PICTURE])
    assert (first.shape, first.dtype) == (PICTURE.shape[:2], np.float32)
    assert 0 <= first.min() < 0.3 < 0.5 < first.max() <= 1
    assert np.array_equal(model.mask(Image.fromarray(PICTURE)), first)
    assert np.abs(first - second).max() > 0.01
    large = np.zeros((512, 512, 3), np.uint8)
    large[:64, :80] = PICTURE
    x = model.preprocess(large)
    one, two = model.masks([large, large])
    x[..., 3] = mx.array(one)
    assert np.allclose(mx.softmax(model(x), axis=-1)[0, ..., 1], two, atol=1e-5)
    assert np.array_equal(model.predict([PICTURE])[0], first > 0.5)
    with pytest.raises(ValueError, match="a mask is for one image, but got 2"):
        model.mask([PICTURE, PICTURE])
    with pytest.raises(ValueError, match="multiples of 32"):
        model(mx.zeros((1, 32, 40, 4)))


def test_a_model_that_was_trained_on_other_images_does_not_stretch():
    model = randomised(zoo.HairSegmenter(3), all_weights=True)
    expected = np.array(model(model.preprocess(PICTURE)).argmax(-1))[0, : len(PICTURE), : len(PICTURE[0])]
    assert np.array_equal(model.predict(PICTURE), expected)
    two = randomised(zoo.HairSegmenter(2), all_weights=True)
    two.about.input["side"] = 64
    expected = np.array(two(two.preprocess(PICTURE)).argmax(-1))[0, : len(PICTURE), : len(PICTURE[0])]
    assert np.array_equal(two.predict(PICTURE), expected)


MEMORY = """
    import resource, sys
    import mlx_unpool_zoo as zoo, numpy as np

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    model, picture = zoo.HairSegmenter(), np.zeros((3000, 4000, 3), np.uint8)
    picture[::7] = 9
    model.mask(picture[:600, :600])
    before = peak()
    assert model.mask(picture).shape == (3000, 4000)
    print(peak() - before)
"""


def test_12_megapixels_need_less_than_400_mb():
    command = [sys.executable, "-c", textwrap.dedent(MEMORY)]
    result = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert int(result.stdout) < 4e8


@pytest.mark.skipif(not HAIR.is_dir(), reason="the published weights are not here (HAIR)")
def test_the_published_weights_give_what_mediapipe_gives(tmp_path):
    model = zoo.from_pytorch("hair", read_tflite(HAIR / "hair_segmentation.tflite"))
    expected = np.load(HAIR / "reference.npz")
    for path in sorted(HAIR.glob("*.png")):
        with Image.open(path) as image:
            mask = model.mask(image.convert("RGB"))
        assert np.array_equal(np.packbits(mask > 0.5), expected[f"{path.stem}_hair"])
        assert np.abs(mask[::4, ::4] - expected[f"{path.stem}_mask"]).mean() < 5e-5
    with Image.open(HAIR / "square.png") as image:
        square = np.asarray(image.convert("RGB"))
    frames = (np.roll(square, (3 * n, 5 * n), (0, 1)) for n in range(8))
    for mask, theirs in zip(model.masks(frames), expected["frame_masks"], strict=True):
        assert ((mask[::4, ::4] > 0.5) == (theirs > 0.5)).mean() > 0.999


# The program, with random weights.


@pytest.fixture(scope="module")
def random_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hair") / "model"
    randomised(small_model("hair")[0], all_weights=True).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def black_model(tmp_path_factory):
    """A model that finds no hair."""
    folder, model = tmp_path_factory.mktemp("no_hair") / "model", zoo.HairSegmenter()
    model.head.layers[2].bias = mx.array([9.0, -9.0])
    model.save_pretrained(folder)
    return folder


def test_hair_gets_the_colour_and_keeps_its_texture():
    grey = np.random.default_rng(0).integers(20, 120, (30, 40, 1), np.uint8).repeat(3, -1)
    mask = np.zeros((30, 40), np.float32)
    mask[:, :20] = 1
    bright = hair.brightness_of(grey, mask)
    found = hair.recoloured(grey, mask, hair.table_of(hair.colour_of("#2f6bd0"), bright)).astype(float)
    assert np.array_equal(found[:, 20:], grey[:, 20:])
    assert found[:, :20, 2].mean() > found[:, :20, 0].mean() + 50
    assert np.corrcoef(grey[:, :20, 0].ravel(), found[:, :20].mean(-1).ravel())[0, 1] > 0.95
    assert hair.brightness_of(grey, mask * 0) is None
    for shade in (8, 60, 130, 230):  # from black hair to white
        blond = hair.table_of(hair.colour_of("blond"), shade / 255)[shade]
        red, green, blue = blond
        assert 1.15 < red / green < 1.8, shade  # neither olive nor orange
        assert green > blue
        assert (blond.mean() > shade) == (shade < 190)


def test_photographs_keep_their_profile_and_orientation(tmp_path, random_model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    image, exif = Image.fromarray(PICTURE), Image.Exif()
    exif[0x0112] = 6  # turned
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    image.save("a.png", icc_profile=profile, exif=exif)
    image.save("b.png")
    said = call("hair.py", "a.png", "b.png", "--model", random_model, "--colour", "copper").stdout
    assert said.count("% hair, found in ") == 2
    assert "Wrote demo/hair/a.png.\n" in said
    with Image.open("demo/hair/a.png") as first, Image.open("demo/hair/b.png") as second:
        assert (first.size, second.size) == ((64, 80), (80, 64))
        assert first.info["icc_profile"] == profile
        assert 0.05 < (np.array(second) != PICTURE).any(-1).mean() < 0.95
    both = call("hair.py", "a.png", "b.png", "--model", random_model, "--output", "new.jpg").stdout
    assert "Wrote new-a.jpg." in both


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a.png", "--output", "a.png"], "--output would replace the input a.png: choose another name."),
        (["a.png", "--output", "link.png"], "--output would replace the input link.png: choose"),
        (["a.png", "sub/a.png"], "inputs must have different names, but got a.png, sub/a.png."),
        (
            ["a.png", "--colour", "nice"],
            "--colour must be black, .*, a CSS colour or #rrggbb, but got 'nice'",
        ),
        (["a.png", "--output", "a.mp4"], "--output must end in .png or"),
        (["a.mp4", "--output", "b.png"], "--output must end in .mp4 or"),
        (["a.png"], "a.png: no hair was found."),
        (["bad.png"], "bad.png cannot be read as an image"),
        (["bad.mp4"], "bad.mp4 cannot be recoloured: Invalid data found"),
        (["none.mp4"], "none.mp4 cannot be recoloured: No such file"),
    ],
)
def test_what_cannot_be_recoloured(words, says, tmp_path, black_model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.fromarray(PICTURE).save("a.png")
    Path("link.png").symlink_to("a.png")
    for name in ("bad.png", "bad.mp4"):
        Path(name).write_bytes(b"something else" * 9)
    before = sorted(tmp_path.rglob("*"))
    said = call("hair.py", *words, "--model", black_model, status=1).stderr
    assert re.match(says, said.splitlines()[0]), said
    assert sorted(tmp_path.rglob("*")) == before


# Videos.

MILLISECOND = Fraction(1, 1000)
TIMES = [0, 100, 130, 300]


def write_film(path: Path, turned: bool = False) -> Path:
    """Dark and bright frames at uneven times, in the colours of HD video, and a sound."""
    hd = {"colorspace": 1, "color_range": 1}
    with av.open(path, "w") as film:
        size = {"width": 80, "height": 64, "pix_fmt": "yuv420p", "time_base": MILLISECOND}
        pictures, sound = film.add_stream("libx264", 15, **size, **hd), film.add_stream("aac", 8000)
        for number, time in enumerate(TIMES):
            frame = av.VideoFrame.from_ndarray(PICTURE // (1 + number % 2), "rgb24")
            frame = frame.reformat(format="yuv420p", dst_colorspace=1, dst_color_range=1)
            frame.pts, frame.time_base = time, MILLISECOND
            film.mux(pictures.encode(frame))
        tone = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        tone.sample_rate = 8000
        for stream, last in ((pictures, None), (sound, tone), (sound, None)):
            film.mux(stream.encode(last))
    if turned:  # the display matrix of the first stream, in units of 1 / 65536
        content, one = path.read_bytes(), 1 << 16
        matrices = ([one, 0, 0, 0, one, 0], [0, one, 0, -one, 0, 0])
        upright, quarter = (struct.pack(">9i", *matrix, 0, 0, 1 << 30) for matrix in matrices)
        start = content.index(upright, content.index(b"tkhd"))
        path.write_bytes(content[:start] + quarter + content[start + len(quarter) :])
    return path


def read_film(path: Path) -> tuple[list[int], list[np.ndarray], list[bytes], tuple]:
    """Times in milliseconds, pictures, packets of sound, and colour space, range and rotation."""
    with av.open(path) as film:
        frames = list(film.decode(video=0))
    with av.open(path) as film:
        sound = [bytes(packet) for packet in film.demux(film.streams.audio) if packet.dts is not None]
    times = [round(1000 * frame.time) for frame in frames]
    pictures = [frame.to_ndarray(format="rgb24").astype(int) for frame in frames]
    return times, pictures, sound, (frames[0].colorspace, frames[0].color_range, frames[0].rotation)


@pytest.mark.parametrize("turned", [False, True])
def test_a_video_keeps_its_sound_times_and_orientation(turned, tmp_path, random_model, monkeypatch):
    film, seen, table_of = write_film(tmp_path / "film.mp4", turned), [], hair.table_of
    mask = np.eye(2, dtype=np.float32)[:1].repeat(80 if turned else 64, 0).repeat(32 if turned else 40, 1)
    monkeypatch.setattr(zoo.HairSegmenter, "masks", lambda _, frames: (mask for _ in frames))
    monkeypatch.setattr(hair, "table_of", lambda *given: seen.append(given[1]) or table_of(*given))
    options = "--model", random_model, "--output", tmp_path / "dyed.mp4"
    said = call("hair.py", film, "--colour", "blue", *options).stdout
    assert re.match(r"film.mp4: 4 frames, hair found in [\d.]+ s per frame\nWrote .*dyed.mp4.", said)
    times, before, sound, kind = read_film(film)
    assert (times, len(sound) > 0, abs(kind[2])) == (TIMES, True, 90 * turned)
    new_times, after, new_sound, new_kind = read_film(tmp_path / "dyed.mp4")
    assert (new_times, new_sound, new_kind) == (times, sound, (*kind[:2], 0))
    upright = [np.rot90(picture, kind[2] // 90) for picture in before]
    for new, old in zip(after, upright, strict=True):
        changed = (new - old)[:, : mask.shape[1] // 2 - 4].mean((0, 1))
        assert changed[2] > changed[0] + 30  # blue
        assert np.abs((new - old)[:, mask.shape[1] // 2 + 4 :].mean((0, 1))).max() < 3  # not hair
    assert np.abs(np.diff(seen)).max() < 0.03  # the brightness is smoothed


def test_a_video_without_hair_or_pictures_is_refused(tmp_path, black_model):
    with av.open(tmp_path / "sound.mp4", "w") as film:
        film.add_stream("aac", 8000)
        film.start_encoding()
    whole = write_film(tmp_path / "film.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    options = "--model", black_model, "--output", tmp_path / "new.mp4"
    names = ("film.mp4", "sound.mp4", "cut.mp4")
    said = call("hair.py", *(tmp_path / name for name in names), *options, status=1).stderr.splitlines()
    assert [line.removeprefix(f"{tmp_path}/") for line in said] == [
        "film.mp4: no hair was found.",
        "sound.mp4 has no pictures.",
        "cut.mp4 has no pictures.",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


@pytest.mark.parametrize("suffix", ["png", "mp4"])
def test_an_interrupted_program_leaves_its_files_as_they_were(suffix, tmp_path, random_model):
    source = tmp_path / "inputs" / f"a.{suffix}"
    source.parent.mkdir()
    Image.fromarray(PICTURE).save(source) if suffix == "png" else write_film(source)
    work = tmp_path / "work"
    work.mkdir()
    words = lambda folder: [source, "--model", random_model, "--output", folder / f"b.{suffix}"]
    check_faults("hair", words, source.parent, work)
