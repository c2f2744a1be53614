"""Weights that others published, from a server on this machine."""

import functools
import hashlib
import multiprocessing
import re
import shutil
import threading
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from digit_scenes import scenes_to_evaluate
from helpers.masks import BLOCKS, write
from helpers.programs import call
from helpers.small_models import save_state, small_model, vgg16_state
from helpers.tflite_files import constants_of, tflite_of
from mlx.utils import tree_flatten
from mlx_unpool_zoo.about import IMAGENET
from mlx_unpool_zoo.published import ENCODERS, PUBLISHED, Published
from PIL import Image

AUTHORS = "https://example.org/authors", "MIT", "https://example.org/LICENSE"


class Handler(SimpleHTTPRequestHandler):
    """Serves the folders good, changed, cut (half of a file) and held (the rest once ``resume`` is set)."""

    def copyfile(self, source: Any, target: Any) -> None:
        content = source.read()
        half = len(content) // 2
        target.write(content[:half])
        if "held" in self.path:
            self.server.resume.wait()
        if "cut" not in self.path:
            target.write(content[half:])

    def log_message(self, *_: Any) -> None:
        self.server.requests.append(self.path)


@pytest.fixture
def server(tmp_path, tmp_path_factory, monkeypatch) -> Iterator[Any]:
    """A server with weights as the entry ``hair``, small ones of VGG-16, and an empty cache."""
    folder, content = tmp_path_factory.mktemp("served"), tflite_of(constants_of(small_model("hair")[0]))
    vgg16 = save_state(folder / "vgg16.safetensors", vgg16_state()[1]).read_bytes()
    for name in ("good", "changed", "cut", "held"):
        (folder / name).mkdir()
        for file, whole in (("hair.tflite", content), ("vgg16.safetensors", vgg16)):
            (folder / name / file).write_bytes(whole + b"x" * (name == "changed"))

    def offer(*names: str, file: str = "hair.tflite") -> Published:
        ports = (1 if name == "closed" else made.server_port for name in names)
        addresses = tuple(f"http://127.0.0.1:{p}/{n}/{file}" for p, n in zip(ports, names))
        digest = hashlib.sha256((folder / "good" / file).read_bytes()).hexdigest()
        entry, table, name = Published(addresses, digest, *AUTHORS), PUBLISHED, "hair"
        if file != "hair.tflite":
            entry, table, name = entry._replace(sha256=digest[:8], megabytes=1), ENCODERS, "vgg16_bn"
        monkeypatch.setitem(table, name, entry)
        return entry

    made: Any = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    made.requests, made.offer, made.resume, made.folder = [], offer, threading.Event(), folder
    made.offer("good")
    monkeypatch.setenv("MLX_UNPOOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    threading.Thread(target=made.serve_forever, args=[0.01], daemon=True).start()
    yield made
    made.resume.set()
    made.shutdown()
    made.server_close()
    assert not (tmp_path / "hub").exists()


def test_the_lines_of_the_first_page_run(server, tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "README.md").read_text()
    (block,) = [code for code in re.findall(r"```py\n(.*?)```", page, re.DOTALL) if "from_pretrained" in code]
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 30)).save("photo.jpg")
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["mask"].shape == (30, 40)
    assert server.requests == ["/good/hair.tflite"]


def test_published_weights_are_downloaded_and_converted_once(server, tmp_path, capfd, monkeypatch):
    expected, x = small_model("hair")
    model = zoo.from_pretrained("hair")
    assert mx.array_equal(model(x), expected(x))
    assert capfd.readouterr().err == "hair: from {}, {} ({})\n".format(*AUTHORS)
    assert (model.about.source, model.about.licence) == AUTHORS[:2]
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert mx.array_equal(zoo.HairSegmenter.from_pretrained("hair")(x), model(x))
    assert (capfd.readouterr().err, server.requests) == ("", ["/good/hair.tflite"])
    with pytest.raises(ValueError, match="'model_type' must be one of quicknat"):
        zoo.QuickNAT.from_pretrained("hair")
    with pytest.warns(UserWarning, match="new random values: head.layers.2"):
        new = zoo.from_pretrained("hair", num_classes=5, ignore_mismatched_sizes=True)
    assert new(x).shape[-1] == 5
    with pytest.raises(OSError, match=r"are not in .*other, and downloads are switched off"):
        zoo.from_pretrained("hair", cache_dir=tmp_path / "other")  # has precedence over the variable
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with pytest.raises(OSError, match="downloads are switched off"):
        zoo.from_pretrained("hair", cache_dir=tmp_path / "other", local_files_only=True)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=f"'hair' cannot be saved in {tmp_path / 'file'}: "):
        zoo.from_pretrained("hair", cache_dir=tmp_path / "file")
    monkeypatch.chdir(tmp_path)
    small_model("quicknat")[0].save_pretrained("hair")  # a folder of this name has precedence
    assert isinstance(zoo.from_pretrained("hair"), zoo.QuickNAT)


def test_a_file_in_the_cache_with_another_digest_is_named(server, tmp_path):
    path = tmp_path / "cache" / f"hair-{PUBLISHED['hair'].sha256[:8]}.tflite"
    path.parent.mkdir()
    path.write_bytes(b"truncated")
    says = rf"^the weights 'hair' are not in {path}, whose SHA-256 differs: it is incomplete or another"
    with pytest.raises(OSError, match=says):
        zoo.from_pretrained("hair", local_files_only=True)


def test_the_trained_network_in_the_package_finds_digits():
    model = zoo.from_pretrained("digits")
    assert scenes_to_evaluate("test", 20).metrics_of(model)["miou"] > 0.7
    assert [entry["name"] for entry in model.about.classes] == ["background", "0", "1", "4", "7"]


@pytest.mark.parametrize(
    ("name", "says"),
    {
        "none": "404",
        "closed": "ConnectionError",
        "changed": "the file was changed, its SHA-256 is another one",
        "cut": "(ChunkedEncodingError|ConnectionError|the file was changed)",
    }.items(),
)
def test_a_download_that_fails_is_an_error_in_one_line(name, says, server, tmp_path):
    server.offer(name)
    says = rf"^the weights 'hair' cannot be downloaded: \S*/{name}/\S*: {says}\. If .*, save it as (.*)\.$"
    with pytest.raises(OSError, match=says) as error:
        zoo.from_pretrained("hair")
    assert not list(tmp_path.rglob("*.tflite"))
    path = Path(str(error.value).rpartition(" ")[2][:-1])
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"damaged")  # is replaced
    server.offer(name, "good")  # a mirror
    assert zoo.from_pretrained("hair").model_type == "hair"


def download(entry: Published) -> None:
    PUBLISHED["hair"] = entry
    zoo.from_pretrained("hair")


def test_two_processes_may_download_at_once_and_one_may_be_killed(server, tmp_path):
    entry, process = server.offer("held"), multiprocessing.get_context("spawn").Process
    killed, *both = (process(target=download, args=[entry]) for _ in range(3))
    killed.start()
    while not any(path.is_file() and path.stat().st_size for path in (tmp_path / "cache").rglob("*")):
        assert killed.is_alive()
        time.sleep(0.01)
    killed.kill()
    killed.join()
    assert not list((tmp_path / "cache").glob("hair*.tflite"))
    for each in both:
        each.start()
    while len(server.requests) < 3:  # each has begun
        assert all(each.is_alive() for each in both)
        time.sleep(0.01)
    server.resume.set()
    for each in both:
        each.join()
    assert [each.exitcode for each in both] == [0, 0]
    server.offer("none")
    assert zoo.from_pretrained("hair").model_type == "hair"


# A pretrained encoder.


def words_of(folder: Path, *more: object) -> list:
    """The command that trains a SegNet from VGG-16 on five pictures of 32 x 32 pixels."""
    data = write(folder / "data", [np.roll(BLOCKS, n).repeat(2, 0)[:32, :32] for n in range(5)])
    options = "--model", "segnet", "--encoder", "vgg16_bn", "--batch", 1, "--learning-rate", 1e-9
    return ["train", "--data", data, *options, "--output", folder / "out", *more]


def test_a_segnet_is_trained_from_the_published_encoder(server, tmp_path):
    server.offer("good", file="vgg16.safetensors")
    said = call(*words_of(tmp_path, "--steps", 1))
    estimate, line = said.stdout.splitlines()[:2]
    assert re.fullmatch(r"A step will take about \S+ s, .* for all 1, and [\d.]+ GiB of memory\.", estimate)
    says = "vgg16_bn: from {} ({}, {}); the first 8 digits of its SHA-256 were checked."
    assert line == says.format(*AUTHORS)
    (address,) = ENCODERS["vgg16_bn"].addresses
    assert f"vgg16_bn: downloading 1 MB from {address}\n" in said.stderr
    model, (expected, _) = zoo.from_pretrained(tmp_path / "out" / "segnet"), vgg16_state()
    assert model.about.input["normalisation"] == IMAGENET
    assert model.about.source.endswith(f" train on data, from {AUTHORS[0]}")
    assert (model.about.licence, model.about.licence_link) == AUTHORS[1:]
    names = [f"{stage}.layers.{block}.conv.weight" for stage, block in ((0, 0), (2, 2), (4, 2))]
    found, wanted = (dict(tree_flatten(m.parameters())) for m in (model, expected))
    assert all(mx.allclose(found[f"encoder.{n}"], wanted[f"encoder.{n}"], atol=1e-6) for n in names)
    call(*words_of(tmp_path, "--steps", 1, "--overwrite"))
    assert server.requests == ["/good/vgg16.safetensors"]  # once
    shutil.rmtree(tmp_path / "cache")
    assert "Resuming after step 1 of 2." in call(*words_of(tmp_path, "--steps", 2, "--resume")).stdout
    assert len(server.requests) == 1
    said = call(*words_of(tmp_path, "--steps", 3, "--resume", "--class-weights", "none"), status=1).stderr
    assert said.endswith(" was saved by a run with other settings: class_weights None, now none\n")


WITHOUT = {
    "closed": r"cannot be downloaded: (\S+): ConnectionError\. If you have the file, save it as (\S+)\.",
    "off": r"are not in .*, and downloads .* off\. They are at (\S+)\. If .*, save it as (\S+)\.",
}


@pytest.mark.parametrize(("name", "says"), WITHOUT.items())
def test_without_the_encoder_a_line_says_where_it_is_and_goes(name, says, server, tmp_path, monkeypatch):
    entry = server.offer(name, file="vgg16.safetensors")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", name == "off")
    line = call(*words_of(tmp_path), status=1).stderr.splitlines()[-1]
    address, path = re.fullmatch(f"the weights 'vgg16_bn' {says}", line).groups()
    assert address == entry.addresses[0]
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.rglob("*.safetensors"))
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_bytes((server.folder / "good" / "vgg16.safetensors").read_bytes())
    assert "Wrote the best model" in call(*words_of(tmp_path, "--steps", 1)).stdout


def test_an_encoder_of_other_shapes_is_refused_and_options_that_it_decides(server, tmp_path):
    state = vgg16_state()[1]
    state["features.3.weight"] = mx.zeros((8, 9, 3, 3))
    save_state(server.folder / "good" / "vgg16.safetensors", state)
    server.offer("good", file="vgg16.safetensors")
    line = call(*words_of(tmp_path), status=1).stderr.splitlines()[-1]
    assert re.search(r"/vgg16_bn-\w{8}\.safetensors: .*encoder\.0\.\S*1\S*conv\.weight", line)
    assert not (tmp_path / "out").exists()
    for more in (["--norm", "group"], ["--decoder", "skip"], ["--decoder-kernel", 3], ["--model", "enet"]):
        call_refused = call(*words_of(tmp_path, *more), status=2)
        assert "--encoder needs --model segnet, without --decoder, --decoder-k" in call_refused.stderr
