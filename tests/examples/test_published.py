"""Weights that others published, from a server on this machine."""

import functools
import hashlib
import multiprocessing
import re
import threading
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_unpool_zoo as zoo
import pytest
from digit_scenes import scenes_to_evaluate
from helpers.small_models import small_model
from helpers.tflite_files import constants_of, tflite_of
from mlx_unpool_zoo.published import PUBLISHED, Published
from PIL import Image

AUTHORS = "https://example.org/authors", "MIT", "https://example.org/LICENSE"


class Handler(SimpleHTTPRequestHandler):
    """Serves the folders good, changed, cut and held.

    A file is cut in half in ``cut``; in ``held`` the other half follows once ``resume`` is set.
    """

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
    """A server with weights as the entry ``hair``, and an empty cache."""
    folder = tmp_path_factory.mktemp("served")
    content = tflite_of(constants_of(small_model("hair")[0]))
    for name in ("good", "changed", "cut", "held"):
        (folder / name).mkdir()
        served = content + b"x" if name == "changed" else content
        (folder / name / "hair.tflite").write_bytes(served)

    def offer(*names: str) -> Published:
        ports = (1 if name == "closed" else made.server_port for name in names)
        addresses = tuple(f"http://127.0.0.1:{p}/{n}/hair.tflite" for p, n in zip(ports, names))
        entry = Published(addresses, hashlib.sha256(content).hexdigest(), *AUTHORS)
        monkeypatch.setitem(PUBLISHED, "hair", entry)
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
    blocks = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    (block,) = [code for code in blocks if "from_pretrained" in code]
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 30)).save("photo.jpg")
    Image.new("RGB", (64, 48)).save("scene.png")
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["mask"].shape == (30, 40)
    assert names["classes"].shape == (48, 64)
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
        # has precedence over the variable
        zoo.from_pretrained("hair", cache_dir=tmp_path / "other")
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
    says = rf"\. {path} has another SHA-256: it is incomplete or another file\.$"
    with pytest.raises(OSError, match=says):
        zoo.from_pretrained("hair", local_files_only=True)
    server.offer("none")
    with pytest.raises(OSError, match=f"cannot be downloaded: .*404{says}"):
        zoo.from_pretrained("hair")


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
    says = (
        rf"^the weights 'hair' cannot be downloaded: \S*/{name}/\S*: {says}\. "
        r"If .*, save it as (.*)\.$"
    )
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
    while not any(
        path.is_file() and path.stat().st_size for path in (tmp_path / "cache").rglob("*")
    ):
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
