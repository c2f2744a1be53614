"""Hair: the network with the published weights against MediaPipe, TFLite files and the program."""

import http.server
import os
import threading
from functools import partial
from pathlib import Path

import hair
import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
import pooch
import pytest
import tflite
from mlx_unpool_zoo.hair_segmenter import SIDE, stretched
from mlx_unpool_zoo.tflite import read_tflite
from PIL import Image
from programs import call, errors_of
from small_models import small_model
from tflite_files import tensors_of, tflite_of, write_tflite

ROOT = Path(__file__).parents[2]
# The published file, pictures, and the confidences of MediaPipe for them.
HAIR = Path(os.environ.get("HAIR", ROOT.parent / "shared" / "hair"))
published = pytest.mark.skipif(not HAIR.is_dir(), reason="the published weights are not here (HAIR)")


# Files.


def test_a_tflite_file_becomes_the_model_that_it_was(tmp_path):
    model, x = small_model("hair_segmenter")
    path = write_tflite(tmp_path / "hair.tflite", model)
    said = call("mlx_unpool_zoo.convert", "hair_segmenter", path, tmp_path / "a", "--licence", "apache-2.0")
    assert said.stdout == f"{tmp_path / 'a'}: 181,506 parameters\n"
    again = zoo.from_pretrained(tmp_path / "a")
    assert mx.array_equal(again(x), model(x))
    assert [entry["name"] for entry in again.about.classes] == ["background", "hair"]


def test_damaged_and_foreign_files_are_refused(tmp_path):
    model, _ = small_model("hair_segmenter")
    tensors, path = tensors_of(model), tmp_path / "hair.tflite"
    whole, random = tflite_of(tensors), np.random.default_rng(0)
    first = next(iter(tensors))

    def refused(contents: bytes, says: str) -> None:
        path.write_bytes(contents)
        with pytest.raises(ValueError, match=says) as error:
            zoo.from_pytorch("hair_segmenter", read_tflite(path))
        assert "\n" not in str(error.value)

    refused(b"", "it is not a TFLite file")
    refused(b"PK\x03\x04" * 9, "it is not a TFLite file")
    for length in random.integers(8, len(whole), 40):
        refused(whole[:length], "cannot be read as a TFLite file|cannot load the weights|no .*weight")
    refused(
        tflite_of({k: v for k, v in tensors.items() if k != "conv2d_9/Bias"}), "missing: stage1.2.branch.0.b"
    )
    refused(tflite_of(tensors | {"more": np.zeros(3, np.float32)}), "not used: more")
    refused(tflite_of(tensors | {first: tensors[first][:, :1]}), r"shape .* instead of .*: stem.0.weight")
    refused(tflite_of(tensors | {first: tensors[first] * np.nan}), "must be finite, .*stem")
    refused(tflite_of(tensors, tflite.TensorType.INT8), "neither float32 nor float16")
    long = {"x" * 200_000 + str(n): np.zeros(1, np.float32) for n in range(60)}
    refused(tflite_of(long), "10 million characters")
    changed, messages = bytearray(whole), []
    for position in random.integers(8, len(whole), 300):  # other weights, or an error in one line
        value, changed[position] = changed[position], random.integers(256)
        path.write_bytes(changed)
        try:
            read_tflite(path)
        except ValueError as error:
            messages.append(str(error))
        changed[position] = value
    assert not any("\n" in message for message in messages)


def test_the_download_is_checked_and_cached(tmp_path, monkeypatch):
    write_tflite(tmp_path / "hair.tflite", small_model("hair_segmenter")[0])
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/hair.tflite"
        with pytest.raises(ValueError, match="does not match the known hash"):
            zoo.HairSegmenter.download(url)
        assert not list((tmp_path / "cache").iterdir())
        with pytest.raises(OSError, match="404"):
            zoo.HairSegmenter.download(f"{url}x")
        known = pooch.file_hash(tmp_path / "hair.tflite")
        zoo.HairSegmenter.download(url, known)
        server.shutdown()
    model = zoo.HairSegmenter.download(url, known)  # from the cache
    assert (model.about.source, model.about.licence) == (url, "apache-2.0")


# Masks.


def test_photographs_of_any_size_are_stretched():
    picture = np.random.default_rng(0).integers(0, 256, (1024, 1536, 3), np.uint8)
    means = picture.reshape(SIDE, 2, SIDE, 3, 3).mean((1, 3))
    assert np.array_equal(stretched(picture), np.floor(means + 0.5))
    assert np.array_equal(stretched(picture[:SIDE, :SIDE]), picture[:SIDE, :SIDE])
    assert np.array_equal(stretched(np.full((3, 700, 3), 7)), np.full((SIDE, SIDE, 3), 7))
    model, _ = small_model("hair_segmenter")
    mask = model.mask(picture[:40, :70])
    assert (mask.shape, mask.dtype) == ((40, 70), np.float32)
    assert 0 <= mask.min() <= mask.max() <= 1
    assert np.array_equal(model.predict(picture[:40, :70]), mask > 0.5)


@published
def test_the_published_weights_give_what_mediapipe_gives(tmp_path):
    model = zoo.from_pytorch("hair_segmenter", read_tflite(HAIR / "hair_segmentation.tflite"))
    expected = np.load(HAIR / "reference.npz")
    for path in sorted(HAIR.glob("*.png")):
        with Image.open(path) as image:
            mask = model.mask(image.convert("RGB"))
        theirs = np.unpackbits(expected[f"{path.stem}_hair"]).reshape(mask.shape)
        assert (((mask > 0.5) == theirs) | (np.abs(mask - 0.5) < 1e-3)).all()
        assert np.abs(mask[::4, ::4] - expected[f"{path.stem}_mask"]).mean() < 1e-4
    with Image.open(HAIR / "square.png") as image:
        square = np.asarray(image.convert("RGB"))
    frames = (np.roll(square, (3 * n, 5 * n), (0, 1)) for n in range(8))
    for mask, theirs in zip(model.masks(frames), expected["frame_masks"], strict=True):
        assert ((mask[::4, ::4] > 0.5) == (theirs > 0.5)).mean() > 0.999


# The program.


def test_hair_gets_the_colour_and_keeps_its_texture():
    picture = np.random.default_rng(0).integers(20, 120, (30, 40, 1), np.uint8).repeat(3, -1)
    mask = np.zeros((30, 40), np.float32)
    mask[:, :20] = 1
    found = hair.dyed(picture, mask, hair.colour_of("#2f6bd0")).astype(float)
    assert np.array_equal(found[:, 20:], picture[:, 20:])
    red, _, blue = found[:, :20].reshape(-1, 3).mean(0)
    assert blue > red + 50
    before, after = picture[:, :20, 0].ravel(), found[:, :20].mean(-1).ravel()
    assert np.corrcoef(before, after)[0, 1] > 0.95
    assert np.array_equal(hair.dyed(picture, mask * 0, hair.colour_of("pink")), picture)


@published
def test_the_program_dyes_photographs_and_never_replaces_one(tmp_path):
    source = HAIR / "hair_segmentation.tflite"
    call("mlx_unpool_zoo.convert", "hair_segmenter", source, tmp_path / "model")
    photo = next(iter(sorted(HAIR.glob("*.png"))))
    Image.new("RGB", (50, 40), "white").save(tmp_path / "empty.png")
    options = "--model", tmp_path / "model", "--output", tmp_path / "dyed.png"
    said = errors_of("hair.py", photo, tmp_path / "empty.png", *options)
    assert said[-2:] == [f"{tmp_path / 'empty.png'}: no hair was found.", "1 of 2 photographs were not dyed."]
    with Image.open(photo) as before, Image.open(tmp_path / f"dyed-{photo.stem}.png") as after:
        assert before.size == after.size
        assert 0.01 < (np.array(before.convert("RGB")) != np.array(after)).any(-1).mean() < 0.5
    same = errors_of("hair.py", tmp_path / "empty.png", *options[:3], tmp_path / "empty.png")
    assert "would replace the input" in same[0]


@published
def test_the_program_dyes_a_video_and_keeps_its_sound_and_times(tmp_path):
    av = pytest.importorskip("av")
    with Image.open(HAIR / "square.png") as image:
        photo = image.convert("RGB").resize((322, 240))
    with av.open(tmp_path / "film.mp4", "w") as film:
        pictures, sound = film.add_stream("libx264", rate=15), film.add_stream("aac", rate=8000)
        pictures.width, pictures.height, pictures.pix_fmt = 322, 240, "yuv420p"
        for _ in range(4):
            film.mux(pictures.encode(av.VideoFrame.from_image(photo)))
        tone = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        tone.sample_rate = 8000
        for stream, frame in ((pictures, None), (sound, tone), (sound, None)):
            film.mux(stream.encode(frame))
    source = HAIR / "hair_segmentation.tflite"
    call("mlx_unpool_zoo.convert", "hair_segmenter", source, tmp_path / "model")
    options = "--model", tmp_path / "model", "--output", tmp_path / "dyed.mp4"
    said = call("hair.py", tmp_path / "film.mp4", "--colour", "blue", *options).stdout
    assert said.startswith("film.mp4: 4 frames, ")
    found = {}
    for name in ("film.mp4", "dyed.mp4"):
        with av.open(tmp_path / name) as film:
            assert {stream.type for stream in film.streams} == {"video", "audio"}
            found[name] = [(frame.time, frame.to_ndarray(format="rgb24")) for frame in film.decode(video=0)]
    assert [time for time, _ in found["film.mp4"]] == [time for time, _ in found["dyed.mp4"]]
    before, after = (np.asarray(found[name][-1][1], int) for name in ("film.mp4", "dyed.mp4"))
    assert 0.02 < ((after - before)[..., 2] > 30).mean() < 0.1
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    said = errors_of("hair.py", tmp_path / "bad.mp4", *options)
    assert said == [f"{tmp_path / 'bad.mp4'} cannot be dyed: Invalid data found when processing input."]
