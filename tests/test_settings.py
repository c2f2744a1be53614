"""A setting holds inside its ``with`` block, for the thread or task of the block."""

import asyncio
import subprocess
import sys
import threading
from contextlib import nullcontext
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest

import mlx_unpool
from mlx_unpool import _backends, _checks, _derivatives
from mlx_unpool._settings import set_inside
from mlx_unpool._types import BACKENDS

BLOCKS = {
    "exporting": (mlx_unpool.exporting, _derivatives._exporting.get, False, True),
    "checking": (mlx_unpool.checking, _checks.is_checking, False, True),
    "use_backend": (lambda: mlx_unpool.use_backend("metal"), _backends._forced.get, None, "metal"),
}


@pytest.fixture(params=BLOCKS)
def block(request):
    """The context manager, a function that reads the value, the value outside and the value inside."""
    parts = BLOCKS[request.param]
    assert parts[1]() == parts[2]
    yield parts
    assert parts[1]() == parts[2]


def test_it_holds_inside_and_ends_with_the_block(block):
    enter, value, outside, inside = block
    with enter():
        assert value() == inside
        with enter():
            assert value() == inside
        assert value() == inside
    assert value() == outside
    with pytest.raises(KeyboardInterrupt), enter():
        raise KeyboardInterrupt
    assert value() == outside


def test_it_holds_in_tasks_but_not_in_threads_that_are_started_inside(block):
    enter, value, outside, inside = block
    in_a_thread = []

    async def read():
        await asyncio.sleep(0)
        return value()

    async def main():
        before = asyncio.create_task(read())
        with enter():
            made_inside = asyncio.create_task(read())
            thread = threading.Thread(target=lambda: in_a_thread.append(value()))
            thread.start()
            thread.join()
            assert await asyncio.to_thread(value) == await made_inside == inside
            assert await before == outside
        assert value() == outside

    asyncio.run(main())
    assert in_a_thread == [outside]


INDEX, WORD = r"\[max_unpool1d\] 'indices' must", "'MLX_UNPOOL_CHECK' must be one of .* but got"
WORDS = {"1": INDEX, "TRUE": INDEX, "on": INDEX, "0": None, "": None, "false": None, "No": None}
WORDS |= {"2": WORD, "maybe": WORD, "tru": WORD}


@pytest.mark.parametrize(("value", "error"), WORDS.items())
def test_an_environment_variable_turns_checking_on(value, error, monkeypatch):
    monkeypatch.setenv("MLX_UNPOOL_CHECK", value)
    with pytest.raises(ValueError, match=error) if error else nullcontext():
        mlx_unpool.max_unpool1d(mx.ones((2, 1)), mx.array([[0], [4]]), 2)


def report(backend: str) -> subprocess.CompletedProcess:
    """The output of ``python -m mlx_unpool`` with an environment variable."""
    environment = {"MLX_UNPOOL_BACKEND": backend, "PYTHONPATH": ":".join(filter(None, sys.path))}
    command = [sys.executable, "-m", "mlx_unpool"]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["", *BACKENDS])
def test_the_module_prints_versions_devices_and_the_backend(name):
    done = report(name)
    assert (done.returncode, done.stderr) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[:7])
    assert lines["mlx_unpool"] == mlx_unpool.__version__
    assert lines["mlx"] == version("mlx")
    assert "(cpu)" in lines["devices"]
    assert lines["default"].startswith("Device(")
    named = name, f"{name}, not available on this machine"
    assert lines["backend"] in (named if name else BACKENDS)
    assert done.stdout.endswith("\n\nCheck every kernel: python -m mlx_unpool.selftest\n")


def test_an_unknown_backend_in_the_environment_is_refused():
    message = "[mlx_unpool] 'MLX_UNPOOL_BACKEND' must be 'ops', 'metal' or 'cuda' but got 'gpu'."
    done = report("gpu")
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "", message)
    with set_inside(_backends._forced, "gpu"), pytest.raises(ValueError, match="must be") as caught:
        mlx_unpool.max_pool1d(mx.ones((2, 1)), 2)
    assert str(caught.value) == message


class Unprintable:
    def __repr__(self):
        raise RuntimeError


NAMES = {
    "a string": ("gpu", "'gpu'"),
    "a long string": (1000 * "x", "a very long str"),
    "a long integer": (10**5000, "an unprintable int"),
    "a list": (["ops"], "['ops']"),
    "a NumPy array": (np.array([2, 2]), "array([2, 2])"),
    "an array": (mx.zeros((2,)), "an array of shape (2,)"),
    "an object without a repr": (Unprintable(), "an unprintable Unprintable"),
}


@pytest.mark.parametrize(("name", "printed"), NAMES.values(), ids=NAMES)
def test_an_unknown_backend_is_refused(name, printed):
    with pytest.raises(ValueError, match="must be") as caught:
        mlx_unpool.use_backend(name)  # also without ``with``
    expected = "[use_backend] 'name' must be 'ops', 'metal' or 'cuda' but got"
    assert str(caught.value) == f"{expected} {printed}."


@pytest.mark.parametrize("name", [n for n in BACKENDS if not _backends.is_available(n)])
def test_a_backend_that_this_mlx_lacks_is_an_error_in_a_call(name):
    with mlx_unpool.use_backend(name), pytest.raises(RuntimeError, match=r"No \w+ back-end"):
        mlx_unpool.max_pool1d(mx.ones((2, 1)), 2)


def test_plain_operations_run_on_the_cpu_whatever_the_stream_of_a_call():
    stream = SimpleNamespace(device=SimpleNamespace(type=mx.gpu))  # a GPU stream, without a GPU
    with mlx_unpool.use_backend("ops"):
        assert _backends.target_of(stream) == (mx.default_stream(mx.cpu), _backends.get("ops"))
