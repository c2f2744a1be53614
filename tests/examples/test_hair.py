"""Hair: TFLite files, masks, the published weights against MediaPipe, and the program."""

import os
import re
import tracemalloc
from pathlib import Path

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
        r"shape .* instead of .*: stem.0.weight": tflite_of(
            constants | {first: constants[first][:, :1]}
        ),
        "must be finite, .*stem": tflite_of(constants | {first: constants[first] * np.nan}),
        "TFLite file": whole[: len(whole) // 2],
        "is of the type STRING, which is not supported": tflite_of(
            constants, kind=tflite.TensorType.STRING
        ),
        "10 million characters": tflite_of(long),
    }
    for says, content in refusals.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=says) as error:
            zoo.from_pytorch("hair", read_tflite(path))
        assert len(str(error.value).splitlines()) == 1


def test_pictures_are_stretched_to_512_x_512_as_by_opencv():
    """Expected: cv2.resize of OpenCV 4.11, INTER_LINEAR and INTER_AREA."""
    some = [0, 200, 511]
    large = [(np.arange(n) ** 2 * 3 % 251).astype(np.uint8) for n in (600, 700)]
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


@pytest.mark.parametrize(("classes", "side"), [(2, 64), (3, None)])
def test_a_model_that_was_trained_on_other_images_does_not_stretch_and_has_no_mask(classes, side):
    model = randomised(zoo.HairSegmenter(classes), all_weights=True)
    if side:
        model.about.input["side"] = side
    expected = np.array(model(model.preprocess(PICTURE)).argmax(-1))[0, :64, :80]
    assert np.array_equal(model.predict(PICTURE), expected)
    with pytest.raises(ValueError, match="trained on other images: use predict"):
        model.mask(PICTURE)


def test_wide_and_tall_pictures_are_cut_into_squares(monkeypatch):
    counts = {(600, 800): 1, (601, 800): 1, (600, 801): 2, (600, 900): 3, (720, 1280): 3}
    for size, count in counts.items():
        for height, width in (size, size[::-1]):
            (rows, columns), squares = squares_of(height, width)
            total = np.zeros((rows, columns))
            for place, weights in squares:
                assert total[place].shape == (512, 512)
                total[place] += weights
            assert len(squares) == count, size
            assert np.allclose(total, 1)
            assert abs(rows / columns - height / width) < 0.002 or count == 1
            # next to another square
            assert all(weights.ravel()[0] < 0.01 for _, weights in squares[1:])
    # A network that uses single pixels, and keeps half of the mask before: squares change nothing.
    half = lambda x: mx.stack(
        [mx.zeros(x.shape[:3]), logit(0.1 + 0.4 * x[..., 0] + 0.4 * x[..., 3])], -1
    )
    logit = lambda p: mx.log(p / (1 - p))
    monkeypatch.setattr(zoo.HairSegmenter, "__call__", lambda _, x: half(x))
    ramp = np.linspace(0, 255, 1280).astype(np.uint8)[None, :, None].repeat(720, 0).repeat(3, -1)
    for picture in (ramp, ramp.swapaxes(0, 1)):
        one, two = list(zoo.HairSegmenter().masks([picture] * 2, squares=True))
        assert np.allclose(one, 0.1 + 0.4 * picture[..., 0] / 255, atol=0.01)
        assert np.allclose(two, 0.1 + 0.4 * picture[..., 0] / 255 + 0.4 * one, atol=0.01)


@pytest.mark.parametrize("size", [(1, 5000), (5, 4), (31, 60), (1000, 100)])
def test_small_and_narrow_pictures_are_not_cut_into_squares(size, monkeypatch):
    monkeypatch.setattr(zoo.HairSegmenter, "__call__", lambda _, x: x[..., :2])
    for height, width in (size, size[::-1]):
        picture = np.zeros((height, width, 3), np.uint8)
        assert zoo.HairSegmenter().mask(picture).shape == (height, width)
        if size == (5, 4):
            assert zoo.HairSegmenter().mask(picture, squares=True).shape == (height, width)
            continue
        says = f"must have 32 pixels or more .* at most 8 times .* got {width} x {height}: crop it"
        with pytest.raises(ValueError, match=says):
            zoo.HairSegmenter().mask(picture, squares=True)


@pytest.mark.parametrize("size", [(3000, 4000), (1024, 8192)])
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


def found(monkeypatch: pytest.MonkeyPatch, mask: np.ndarray) -> list[np.ndarray]:
    """Let each photograph have this mask; the photographs that the network gets."""
    seen = []

    def mask_of(model: zoo.HairSegmenter, picture: np.ndarray, *, squares: bool) -> np.ndarray:
        seen.append(picture)
        return mask

    monkeypatch.setattr(zoo.HairSegmenter, "mask", mask_of)
    return seen


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    randomised(small_model("hair")[0], all_weights=True).save_pretrained(folder / "model")
    Image.fromarray(PICTURE).save(folder / "a.png")
    Image.fromarray(PICTURE).save(folder / "A.jpg")
    for name in ("grey16.png", "grey16.tif"):
        Image.fromarray(PICTURE[..., 0].astype(np.uint16) * 257).save(folder / name)
    (folder / "link.png").symlink_to("a.png")
    (folder / "sub").mkdir()
    (folder / "sub" / "a.png").hardlink_to(folder / "a.png")
    (folder / "bad.png").write_bytes(b"something else" * 9)
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
    said = call("hair", "a.png", "b.png", *options, "--output", "new/v1.2").stdout
    assert "Wrote new/v1.2/b.png." in said
    with Image.open("new/v1.2/b.png") as image:
        assert image.size == (80, 64)


REFUSED = {
    "a.png --output a.png": "--output would replace the input a.png: choose another name.",
    "a.png --output link.png": "--output would replace the input link.png: choose",
    "grey16.tif --output .": "--output would replace grey16.png: choose another folder.",
    "a.png sub/a.png": r"inputs must have different names .*, but got a.png, sub/a.png\.",
    "a.png A.jpg": r"inputs must have different names .*, but got a.png, A.jpg\.",
    "a.png --colour nice": "'colour' must be black, .*, a CSS colour or #rrggbb, but got 'nice'",
    "a.png --colour #ff000080": "'colour' must be black, .* but got '#ff000080'",
    "a.png --output a.gif": "--output must end in .png or",
    "grey16.png": "grey16.png has grey values of more than 8 bits: save it with 8 bits",
    "a.png": (
        "a.png: no hair was found; "
        "the network expects a face that fills much of the picture: crop it."
    ),
    "bad.png": "bad.png cannot be read as an image",
    "none.png a.png b.png": "There is no file none.png and no file b.png.",
}


@pytest.mark.parametrize(("words", "says"), REFUSED.items())
def test_what_cannot_be_recoloured(words, says, inputs, monkeypatch):
    monkeypatch.chdir(inputs)
    found(monkeypatch, np.zeros((64, 80), np.float32))
    before = contents(inputs)
    said = call("hair", *words.split(), "--model", "model", status=1).stderr
    assert re.match(says, said.splitlines()[0]), said
    assert contents(inputs) == before


@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize("suffix", ["gif", "png", "webp", "tiff"])
def test_an_animation_is_refused(suffix, clear, tmp_path, inputs, monkeypatch):
    found(monkeypatch, np.ones((64, 80), np.float32))
    first = Image.fromarray(PICTURE)
    if clear:
        first.putalpha(Image.linear_gradient("L").resize(first.size).point([0] * 128 + [255] * 128))
    path = tmp_path / f"a.{suffix}"
    first.save(path, save_all=True, append_images=[first.transpose(Image.Transpose.ROTATE_180)])
    options = "--model", inputs / "model", "--output", tmp_path / "out"
    said = call("hair", path, *options, status=1).stderr
    assert said == f"{path} must be one photograph, but has 2 frames: save one of them.\n"
    first.save(path)
    assert "Wrote" in call("hair", path, *options).stdout
    with Image.open(tmp_path / "out" / "a.png") as image:
        assert image.mode == ("RGBA" if clear else "RGB")


def test_hardly_any_hair_is_said_once(tmp_path, inputs, monkeypatch):
    found(monkeypatch, np.eye(64, 80, dtype=np.float32) * (np.arange(80) < 10))
    options = "--model", inputs / "model", "--output", tmp_path / "a.png"
    first, second, third = call("hair", inputs / "a.png", *options).stdout.splitlines()
    assert "hair" in first
    assert second.startswith("Note: hardly any hair was found; the network expects a face")
    assert third == f"Wrote {tmp_path / 'a.png'}."


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
        assert (seen[-1][:, :20] == 255).all()


def test_an_interrupted_program_leaves_its_files_as_they_were(inputs, tmp_path):
    given = [inputs / "a.png", "--model", inputs / "model"]
    words = lambda folder: [*given, "--output", folder / "a.png"]
    check_faults("hair", words, inputs, tmp_path)
