"""Weights that others published, from a server on this machine."""

import hashlib
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import mlx.core as mx
import mlx_unpool_zoo as zoo
import pytest
from mlx_unpool_zoo.published import PUBLISHED, Published
from programs import environment
from small_models import small_model
from tflite_files import constants_of, tflite_of

AUTHORS = "https://example.org/authors", "MIT", "https://example.org/LICENSE"


class Handler(BaseHTTPRequestHandler):
    """Serves the file under several paths, each with a different fault."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.requests.append(self.path)
        content, fault = server.content, self.path.split("/")[1]
        if fault == "none":
            self.send_error(404)
            return
        if fault == "changed":
            content = content[:-1] + bytes([content[-1] ^ 1])
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        for start in range(0, len(content) // (2 if fault == "cut" else 1), 2**15):
            self.wfile.write(content[start : start + 2**15])
            time.sleep(0.05 * (fault == "slow"))

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[Any]:
    """A server with weights as the entry ``hair``, and an empty cache."""
    made: Any = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.content, made.requests, made.daemon_threads = (
        tflite_of(constants_of(small_model("hair")[0])),
        [],
        True,
    )
    made.digest = hashlib.sha256(made.content).hexdigest()
    made.address = lambda path: f"http://127.0.0.1:{made.server_port}/{path}/hair.tflite"
    made.offer = lambda *paths: monkeypatch.setitem(
        PUBLISHED, "hair", Published(tuple(map(made.address, paths)), made.digest, *AUTHORS)
    )
    made.offer("good")
    monkeypatch.setenv("MLX_UNPOOL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    thread = threading.Thread(target=made.serve_forever, args=[0.01])
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()
    assert not (tmp_path / "hub").exists()


def test_every_entry_is_complete():
    for name, entry in PUBLISHED.items():
        assert name in zoo.MODELS
        assert re.fullmatch("[0-9a-f]{64}", entry.sha256)
        assert all(address.startswith("https://") for address in (*entry.addresses, entry.licence_link))


def test_published_weights_are_downloaded_and_converted_once(server, tmp_path, capfd, monkeypatch):
    expected, x = small_model("hair")
    model = zoo.from_pretrained("hair")
    assert mx.array_equal(model(x), expected(x))
    assert (
        capfd.readouterr().err
        == "hair: from https://example.org/authors, MIT (https://example.org/LICENSE)\n"
    )
    assert (model.about.source, model.about.licence, model.about.base_model) == (*AUTHORS[:2], "")
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
    monkeypatch.chdir(tmp_path)
    small_model("quicknat")[0].save_pretrained("hair")  # a folder of this name has precedence
    assert isinstance(zoo.from_pretrained("hair"), zoo.QuickNAT)


@pytest.mark.parametrize(
    ("path", "says"),
    {
        "none": "/none/hair.tflite: 404",
        "changed": "/changed/hair.tflite: the file was changed, its SHA-256 is another one",
        "cut": "/cut/hair.tflite: (ChunkedEncodingError|ConnectionError|the file was changed)",
    }.items(),
)
def test_a_download_that_fails_is_an_error_in_one_line(path, says, server, tmp_path):
    server.offer(path)
    with pytest.raises(OSError, match=f"the weights 'hair' cannot be downloaded: http.*{says}") as error:
        zoo.from_pretrained("hair")
    assert len(str(error.value).splitlines()) == 1
    assert not list(tmp_path.rglob("*.tflite"))
    server.offer(path, "good")  # a mirror
    assert zoo.from_pretrained("hair").model_type == "hair"


def test_without_a_network_or_a_folder_to_write(server, tmp_path, monkeypatch):
    closed = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    closed.server_close()
    address = f"http://127.0.0.1:{closed.server_port}/hair.tflite"
    monkeypatch.setitem(PUBLISHED, "hair", Published((address,), server.digest, *AUTHORS))
    with pytest.raises(
        OSError, match=rf"{address}: ConnectionError. If you have the file, save it as "
    ) as error:
        zoo.from_pretrained("hair")
    path = re.search(r"save it as (.*)\.$", str(error.value))[1]
    with pytest.raises(OSError, match="downloads are switched off"):
        zoo.from_pretrained("hair", local_files_only=True)
    server.offer("good")
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=f"'hair' cannot be saved in {tmp_path / 'file'}: "):
        zoo.from_pretrained("hair", cache_dir=tmp_path / "file")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / path.rpartition("/")[2]).write_bytes(b"damaged")  # is replaced
    assert zoo.from_pretrained("hair").model_type == "hair"
    assert len(server.requests) == 1


PROCESS = """
    import sys
    import mlx_unpool_zoo as zoo
    from mlx_unpool_zoo.published import PUBLISHED, Published

    PUBLISHED["hair"] = Published((sys.argv[1],), sys.argv[2], "authors", "MIT", "licence")
    zoo.from_pretrained("hair")
"""


def test_two_processes_may_download_at_once_and_one_may_be_killed(server, tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(PROCESS), server.address("slow"), server.digest]
    start = lambda: subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
    with start() as first:
        while not server.requests:
            time.sleep(0.01)
        time.sleep(0.3)  # within the download, which takes 1.2 s
        first.send_signal(signal.SIGKILL)
    assert not list((tmp_path / "cache").glob("hair*.tflite"))
    both = [start(), start()]
    outputs = [each.communicate()[1] for each in both]
    assert [each.returncode for each in both] == [0, 0], outputs
    server.requests.clear()
    server.offer("none")
    assert zoo.from_pretrained("hair").model_type == "hair"
    assert not server.requests
