"""Hair: TFLite files, masks, the published weights against MediaPipe, and the program."""

import os
import re
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
import tflite
from helpers.faults import check_faults, contents
from helpers.masks import TURNED
from helpers.programs import ROOT, call
from helpers.small_models import randomised, small_model
from helpers.tflite_files import constants_of, tflite_of
from mlx_unpool_zoo.checkpoints import read_tflite
from mlx_unpool_zoo.commands import recolor as hair
from mlx_unpool_zoo.hair import squares_of, stretched
from PIL import Image, ImageCms, ImageFilter

# The published file, pictures, and the confidences of MediaPipe for them.
HAIR = Path(os.environ.get("HAIR", ROOT.parent / "shared" / "hair"))
PICTURE = np.random.default_rng(0).integers(0, 256, (8, 10, 3), np.uint8).repeat(8, 0).repeat(8, 1)


def test_damaged_and_foreign_tflite_files_are_refused(tmp_path):
    constants, path = constants_of(small_model("hair")[0]), tmp_path / "hair.tflite"
    whole, (first, *_) = tflite_of(constants), constants
    path.write_bytes(whole)
    assert "181,506 parameters" in call("convert", "hair", path, tmp_path / "a").stdout
    long = {"x" * 200_000 + str(n): np.zeros(1, np.float32) for n in range(60)}
    refusals = {
        "it is not a TFLite file": b"PK\x03\x04" * 9,
        "missing: encoder.0.2.branch.0.b": tflite_of(constants | {"conv2d_9/Bias": np.zeros(0)}),
        "not used: more": tflite_of(constants | {"more": np.zeros(3, np.float32)}),
        r"shape .* instead of .*: stem.0.weight": tflite_of(constants | {first: constants[first][:, :1]}),
        "must be finite, .*stem": tflite_of(constants | {first: constants[first] * np.nan}),
        "TFLite file": whole[: len(whole) // 2],
        "neither float32 nor float16": tflite_of(constants, kind=tflite.TensorType.INT8),
        "10 million characters": tflite_of(long),
    }
    for says, content in refusals.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=says) as error:
            zoo.from_pytorch("hair", read_tflite(path))
        assert len(str(error.value).splitlines()) == 1


def test_pictures_are_stretched_to_512_x_512_as_by_opencv():
    """Expected: cv2.resize of OpenCV 4.11, INTER_LINEAR and INTER_AREA."""
    some, large = [0, 200, 511], [(np.arange(n) ** 2 * 3 % 251).astype(np.uint8) for n in (600, 700)]
    for picture, expected in (
        ([[0, 63, 252], [55, 240, 39]], [[0, 42, 252], [16, 81, 192], [55, 180, 39]]),
        (np.add.outer(*large), [[1, 129, 167], [69, 140, 135], [105, 143, 111]]),
    ):
        found = stretched(np.stack([np.array(picture, np.uint8)] * 3, axis=-1))
        assert found[np.ix_(some, some)][..., 0].tolist() == expected


def test_a_mask_has_the_size_of_its_image_and_depends_on_the_mask_before():
    model = randomised(zoo.HairSegmenter(), all_weights=True)
    mask = model.mask(Image.fromarray(PICTURE))
    assert (mask.shape, mask.dtype) == ((64, 80), np.float32)
    assert 0 <= mask.min() < 0.3 < 0.5 < mask.max() <= 1
    large = np.pad(PICTURE, [(0, 448), (0, 432), (0, 0)])
    x = model.preprocess(large)
    one, two = model.masks([large, large])
    x[..., 3] = mx.array(one)
    assert np.allclose(mx.softmax(model(x), axis=-1)[0, ..., 1], two, atol=1e-5)
    assert np.array_equal(model.predict([PICTURE])[0], mask > 0.5)
    assert np.abs(one - two).max() > 0.01
    with pytest.raises(ValueError, match="a mask is for one image, but got 2"):
        model.mask([PICTURE, PICTURE])
    with pytest.raises(ValueError, match="multiples of 32"):
        model(mx.zeros((1, 32, 40, 4)))


def test_a_model_that_was_trained_on_other_images_does_not_stretch():
    for classes in (2, 3):
        model = randomised(zoo.HairSegmenter(classes), all_weights=True)
        model.about.input |= {"side": 64} if classes == 2 else {}
        expected = np.array(model(model.preprocess(PICTURE)).argmax(-1))[0, :64, :80]
        assert np.array_equal(model.predict(PICTURE), expected)


def test_wide_and_tall_pictures_are_cut_into_squares(monkeypatch):
    for size, count in {(600, 800): 1, (601, 800): 1, (600, 801): 2, (600, 900): 3, (720, 1280): 3}.items():
        for height, width in (size, size[::-1]):
            (rows, columns), squares = squares_of(height, width)
            total = np.zeros((rows, columns))
            for place, weights in squares:
                assert total[place].shape == (512, 512)
                total[place] += weights
            assert len(squares) == count, size
            assert np.allclose(total, 1)
            assert abs(rows / columns - height / width) < 0.002 or count == 1
            assert all(weights.ravel()[0] < 0.01 for _, weights in squares[1:])  # next to another square
    # A network that uses single pixels, and keeps half of the mask before: squares change nothing.
    half = lambda x: mx.stack([mx.zeros(x.shape[:3]), logit(0.1 + 0.4 * x[..., 0] + 0.4 * x[..., 3])], -1)
    logit = lambda p: mx.log(p / (1 - p))
    monkeypatch.setattr(zoo.HairSegmenter, "__call__", lambda _, x: half(x))
    ramp = np.linspace(0, 255, 1280).astype(np.uint8)[None, :, None].repeat(720, 0).repeat(3, -1)
    for picture in (ramp, ramp.swapaxes(0, 1)):
        one, two = list(zoo.HairSegmenter().masks([picture] * 2, squares=True))
        assert np.allclose(one, 0.1 + 0.4 * picture[..., 0] / 255, atol=0.01)
        assert np.allclose(two, 0.1 + 0.4 * picture[..., 0] / 255 + 0.4 * one, atol=0.01)


@pytest.mark.parametrize("size", [(3000, 4000), (32, 65535)])
def test_large_pictures_need_less_than_200_mb_beside_the_network(size, monkeypatch):
    monkeypatch.setattr(zoo.HairSegmenter, "__call__", lambda _, x: x[..., :2])
    picture = np.zeros((*size, 3), np.uint8)
    for squares in (False, True):
        tracemalloc.start()
        assert zoo.HairSegmenter().mask(picture, squares=squares).shape == size
        assert tracemalloc.get_traced_memory()[1] < 2e8
        tracemalloc.stop()


@pytest.mark.skipif(not HAIR.is_dir(), reason="the published weights are not here (HAIR)")
def test_the_published_weights_give_what_mediapipe_gives(tmp_path):
    model = zoo.from_pytorch("hair", read_tflite(HAIR / "hair_segmentation.tflite"))
    expected = np.load(HAIR / "reference.npz")
    for path in sorted(HAIR.glob("*.png")):
        mask = model.mask(Image.open(path).convert("RGB"))
        assert np.array_equal(np.packbits(mask > 0.5), expected[f"{path.stem}_hair"])
        assert np.abs(mask[::4, ::4] - expected[f"{path.stem}_mask"]).mean() < 5e-5
    square = np.asarray(Image.open(HAIR / "square.png").convert("RGB"))
    frames = (np.roll(square, (3 * n, 5 * n), (0, 1)) for n in range(8))
    for mask, theirs in zip(model.masks(frames), expected["frame_masks"], strict=True):
        assert ((mask[::4, ::4] > 0.5) == (theirs > 0.5)).mean() > 0.999


@pytest.mark.skipif(not HAIR.is_dir(), reason="the published weights are not here (HAIR)")
def test_squares_find_the_hair_of_a_portrait_in_a_wide_scene():
    """The portrait at the left, in the centre and at the right of a blurred scene of 16:9."""
    model = zoo.from_pytorch("hair", read_tflite(HAIR / "hair_segmentation.tflite"))
    portrait = Image.open(hair.PORTRAIT).crop((90, 0, 410, 320)).resize((720, 720))
    alone, found = model.predict(portrait), {True: [], False: []}
    for x in (0, 280, 560):
        scene = portrait.resize((1280, 720)).filter(ImageFilter.GaussianBlur(40))
        wanted = np.zeros((720, 1280))
        scene.paste(portrait, (x, 0))
        wanted[:, x : x + 720] = alone
        for squares in found:
            mask = model.mask(scene, squares=squares) > 0.5
            found[squares].append((mask * wanted).sum() / np.maximum(mask, wanted).sum())
    assert np.mean(found[True]) > max(0.75, np.mean(found[False]) + 0.1)


def test_hair_gets_the_colour_and_keeps_its_texture():
    grey = np.random.default_rng(0).integers(20, 120, (30, 40, 1), np.uint8).repeat(3, -1)
    mask = np.float32([[1, 0]]).repeat(30, 0).repeat(20, 1)
    table = hair.table_of(hair.colour_of("#2f6bd0"), hair.brightness_of(grey, mask))
    found = hair.recoloured(grey, mask, table).astype(float)
    assert np.array_equal(found[:, 20:], grey[:, 20:])
    assert found[:, :20, 2].mean() > found[:, :20, 0].mean() + 50
    assert np.corrcoef(grey[:, :20, 0].ravel(), found[:, :20].mean(-1).ravel())[0, 1] > 0.95
    assert hair.brightness_of(grey, mask * 0) is None
    assert hair.colour_of(f"rgb({'9' * 80}, 0, 0)").tolist() == [1, 0, 0]
    for shade in (8, 60, 130, 230):  # from black hair to white
        red, green, blue = blond = hair.table_of(hair.colour_of("blond"), shade / 255)[shade]
        assert 1.15 < red / green < 1.8, shade  # neither olive nor orange
        assert green > blue
        assert (blond.mean() > shade) == (shade < 190)


MILLISECOND, TIMES = Fraction(1, 1000), [0, 100, 130, 300]


def found(monkeypatch: pytest.MonkeyPatch, mask: np.ndarray) -> list[Any]:
    """Let each picture have this mask; the pictures that the network gets, and the number of masks before."""
    seen = []
    step = lambda _, picture, before, **__: (seen.append((picture, len(before))) or mask, [*before, mask])
    monkeypatch.setattr(zoo.HairSegmenter, "next_mask", step)
    return seen


def write_film(path: Path, turned: bool = False) -> Path:
    """Dark and bright frames at uneven times, in the colours of HD video, and a sound."""
    kind = {"pix_fmt": "yuv420p", "colorspace": 1, "color_range": 1, "time_base": MILLISECOND}
    with av.open(path, "w") as film:
        pictures = film.add_stream("libx264", 15, width=80, height=64, **kind)
        sound = film.add_stream("aac", 8000)
        for number, time in enumerate(TIMES):
            frame = av.VideoFrame.from_ndarray(PICTURE // (1 + number % 2), "rgb24")
            frame = frame.reformat(format="yuv420p", dst_colorspace=1, dst_color_range=1)
            frame.pts, frame.time_base = time, MILLISECOND
            film.mux(pictures.encode(frame))
        tone = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        tone.sample_rate = 8000
        for stream, last in ((pictures, None), (sound, tone), (sound, None)):
            film.mux(stream.encode(last))
    if turned:  # the display matrix of the first stream, after that of the film, in units of 1 / 65536
        matrices = np.array([[1, 0, 0, 0, 1, 0, 0, 0, 1 << 14], [0, 1, 0, -1, 0, 0, 0, 0, 1 << 14]]) << 16
        upright, quarter = (matrix.astype(">i4").tobytes() for matrix in matrices)
        start, header, rest = path.read_bytes().partition(b"tkhd")
        path.write_bytes(start + header + rest.replace(upright, quarter, 1))
    return path


def read_film(path: Path) -> tuple[list[np.ndarray], tuple, int]:
    """The pictures, what must stay as it is (times, colour space and range, sound), and the rotation."""
    with av.open(path) as film:
        frames = list(film.decode(video=0))
    with av.open(path) as film:
        sound = [bytes(packet) for packet in film.demux(film.streams.audio) if packet.dts is not None]
    times, first = [round(1000 * frame.time) for frame in frames], frames[0]
    pictures = [frame.to_ndarray(format="rgb24").astype(int) for frame in frames]
    return pictures, (times, first.colorspace, first.color_range, sound), first.rotation


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    randomised(small_model("hair")[0], all_weights=True).save_pretrained(folder / "model")
    Image.fromarray(PICTURE).save(folder / "a.png")
    (folder / "link.png").symlink_to("a.png")
    (folder / "sub").mkdir()
    (folder / "sub" / "a.png").hardlink_to(folder / "a.png")
    film = write_film(folder / "film.mp4").read_bytes()
    (folder / "cut.mp4").write_bytes(film[: len(film) // 2])
    for name in ("bad.png", "bad.mp4"):
        (folder / name).write_bytes(b"something else" * 9)
    return folder


def test_photographs_keep_their_profile_and_orientation(tmp_path, inputs, monkeypatch):
    monkeypatch.chdir(tmp_path)
    image, options = Image.fromarray(PICTURE), ("--model", inputs / "model")
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    image.save("a.png", icc_profile=profile, exif=TURNED)
    image.save("b.png")
    said = call("hair", "a.png", "b.png", *options, "--color", "copper").stdout
    assert (said.count("% hair, found in "), "Wrote runs/hair/a.png.\n" in said) == (2, True)
    with Image.open("runs/hair/a.png") as first, Image.open("runs/hair/b.png") as second:
        assert (first.size, second.size, first.info["icc_profile"]) == ((64, 80), (80, 64), profile)
        assert 0.05 < (np.array(second) != PICTURE).any(-1).mean() < 0.95
    assert "Wrote runs/hair/portrait.png." in call("hair", *options).stdout
    assert "new-a.jpg." in call("hair", "a.png", "b.png", *options, "--output", "new.jpg").stdout


REFUSED = {
    "a.png --output a.png": "--output would replace the input a.png: choose another name.",
    "a.png --output link.png": "--output would replace the input link.png: choose",
    "a.png sub/a.png": "inputs must have different names, but got a.png, sub/a.png.",
    "a.png --colour nice": "'colour' must be black, .*, a CSS colour or #rrggbb, but got 'nice'",
    "a.png --output a.mp4": "--output must end in .png or",
    "film.mp4 --output b.png": "--output must end in .mp4 or",
    "a.png": "a.png: no hair was found; the network expects a face that fills much of the picture: crop it.",
    "bad.png": "bad.png cannot be read as an image",
    "bad.mp4": "bad.mp4 cannot be recoloured: Invalid data found",
    "none.mp4 a.png b.png": "There is no file none.mp4 and no file b.png.",
    "film.mp4 --output new.mp4": "film.mp4: no hair was found; the network expects",
    "cut.mp4": "cut.mp4 has no pictures.",
}


@pytest.mark.parametrize(("words", "says"), REFUSED.items())
def test_what_cannot_be_recoloured(words, says, inputs, monkeypatch):
    monkeypatch.chdir(inputs)
    found(monkeypatch, np.zeros((64, 80), np.float32))
    before = contents(inputs)
    said = call("hair", *words.split(), "--model", "model", status=1).stderr
    assert re.match(says, said.splitlines()[0]), said
    assert contents(inputs) == before


@pytest.mark.parametrize("name", ["a.png", "film.mp4"])
def test_hardly_any_hair_is_said_once(name, tmp_path, inputs, monkeypatch):
    found(monkeypatch, np.eye(64, 80, dtype=np.float32) * (np.arange(80) < 10))
    options = "--model", inputs / "model", "--output", tmp_path / name
    first, second, third = call("hair", inputs / name, *options).stdout.splitlines()
    assert "hair" in first
    assert second.startswith("Note: hardly any hair was found; the network expects a face")
    assert third == f"Wrote {tmp_path / name}."


def test_photographs_keep_their_transparency(tmp_path, inputs, monkeypatch):
    rgba = np.dstack([PICTURE, np.linspace(0, 255, 80).astype(np.uint8)[None].repeat(64, 0)])
    rgba[:, :20] = 255, 0, 0, 0  # hidden
    Image.fromarray(rgba).save(tmp_path / "a.png")
    seen = found(monkeypatch, np.ones((64, 80), np.float32))
    for name in ("b.png", "b.webp", "b.jpg"):
        options = "--model", inputs / "model", "--output", tmp_path / name
        said = call("hair", tmp_path / "a.png", *options).stdout
        assert ("transparent parts are white" in said) == (name == "b.jpg")
        made = np.asarray(Image.open(tmp_path / name))
        if name == "b.jpg":
            assert (made[:, :10] > 250).all()
        else:
            assert np.array_equal(made[..., 3], rgba[..., 3])
        assert (seen[-1][0][:, :20] == 255).all()


@pytest.mark.parametrize("turned", [False, True])
def test_a_video_keeps_its_sound_times_and_orientation(turned, tmp_path, inputs, monkeypatch):
    film, seen, table_of = write_film(tmp_path / "film.mp4", turned), [], hair.table_of
    mask = np.eye(2, dtype=np.float32)[:1].repeat(80 if turned else 64, 0).repeat(32 if turned else 40, 1)
    frames = found(monkeypatch, mask)
    monkeypatch.setattr(hair, "table_of", lambda *given: seen.append(given[1]) or table_of(*given))
    options = "--model", inputs / "model", "--output", tmp_path / "dyed.mp4"
    said = call("hair", film, "--colour", "blue", *options).stdout
    assert re.match(r"film.mp4: 4 frames, hair found in [\d.]+ s per frame\nWrote .*dyed.mp4.", said)
    assert [number for _, number in frames] == [0, 1, 2, 3]
    before, kept, rotation = read_film(film)
    assert (kept[0], len(kept[3]) > 0, abs(rotation)) == (TIMES, True, 90 * turned)
    after, *same = read_film(tmp_path / "dyed.mp4")
    assert same == [kept, 0]
    for new, old in zip(after, before, strict=True):
        change, middle = new - np.rot90(old, rotation // 90), mask.shape[1] // 2
        red, _, blue = change[:, : middle - 4].mean((0, 1))
        assert blue > red + 30  # hair
        assert np.abs(change[:, middle + 4 :].mean((0, 1))).max() < 3  # not hair
    assert np.abs(np.diff(seen)).max() < 0.03  # the brightness is smoothed


@pytest.mark.parametrize("name", ["a.png", "film.mp4"])
def test_an_interrupted_program_leaves_its_files_as_they_were(name, inputs, tmp_path):
    words = lambda folder: [inputs / name, "--model", inputs / "model", "--output", folder / name]
    check_faults("hair", words, inputs, tmp_path)
