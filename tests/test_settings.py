"""Settings hold inside their ``with`` blocks; interrupts and programs."""

import asyncio
import os
import subprocess
import sys
import threading
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import get_args, get_type_hints

import mlx.core as mx
import numpy as np
import pytest

import mlx_unpool

ROOT = Path(__file__).parent.parent
BACKENDS = get_args(get_type_hints(mlx_unpool.use_backend)["name"])
AVAILABLE = {"ops": True, "metal": mx.metal.is_available(), "cuda": mx.cuda.is_available()}

LINE, OUTSIDE = mx.ones((2, 1)), mx.array([[0], [4]])
TWO, POOL = mx.ones((2, 1), mx.float64), mlx_unpool.MaxPool1d(2)


@contextmanager
def metal_anywhere():
    """Select Metal, which a machine without Metal can only export."""
    with mlx_unpool.exporting(), mlx_unpool.use_backend("metal"):
        yield


# The context manager, and a call that is refused inside it only
BLOCKS = {
    "exporting": (
        mlx_unpool.exporting,
        lambda: mx.grad(lambda x: POOL(x, stream=mx.cpu).sum())(LINE),
    ),
    "checking": (
        mlx_unpool.checking,
        lambda: mlx_unpool.max_unpool1d(LINE, OUTSIDE, 2, stream=mx.cpu),
    ),
    # without float64
    "use_backend": (metal_anywhere, lambda: POOL(TWO, stream=mx.cpu)),
}


@pytest.fixture(params=BLOCKS)
def block(request):
    """The context manager, and a function that returns whether its setting holds."""
    enter, call = BLOCKS[request.param]

    def holds() -> bool:
        try:
            call()
        except (ValueError, TypeError):
            return True
        return False

    mx.eval(LINE, OUTSIDE, TWO)
    assert not holds()
    yield enter, holds
    assert not holds()


def test_it_holds_inside_and_ends_with_the_block(block):
    enter, holds = block
    with enter():
        assert holds()
        with enter():
            assert holds()
        assert holds()
    assert not holds()
    with pytest.raises(KeyboardInterrupt), enter():
        raise KeyboardInterrupt
    assert not holds()


def test_it_holds_in_tasks_but_not_in_threads_that_are_started_inside(block):
    enter, holds = block
    in_a_thread = []

    def there() -> None:
        in_a_thread.append(holds())
        mx.clear_streams()  # as MLX requires at the end of a thread

    async def read():
        return holds()

    async def main():
        before = asyncio.create_task(read())
        with enter():
            made_inside = asyncio.create_task(read())
            thread = threading.Thread(target=there)
            thread.start()
            thread.join()
            await asyncio.to_thread(there)
            assert (await made_inside, await before) == (True, False)
        assert not holds()

    asyncio.run(main())
    assert in_a_thread == [False, True]


INDEX, WORD = r"\[max_unpool1d\] 'indices' must", "'MLX_UNPOOL_CHECK' must be one of .* but got"
WORDS = {"1": INDEX, "TRUE": INDEX, "on": INDEX, "0": None, "": None, "false": None, "No": None}
WORDS |= {"2": WORD, "maybe": WORD, "tru": WORD}


def test_an_environment_variable_turns_checking_on(monkeypatch):
    for value, error in WORDS.items():
        monkeypatch.setenv("MLX_UNPOOL_CHECK", value)
        with pytest.raises(ValueError, match=error) if error else nullcontext():
            mlx_unpool.max_unpool1d(LINE, OUTSIDE, 2)


def run(*command: str, **environment: str) -> subprocess.CompletedProcess:
    """Run Python; after the timeout in seconds it counts as hanging. A run takes a few."""
    options = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 300}
    return subprocess.run([sys.executable, *command], env=os.environ | environment, **options)


@pytest.mark.parametrize("name", ["", *BACKENDS])
def test_the_module_prints_versions_devices_and_the_backend(name):
    done = run("-m", "mlx_unpool", MLX_UNPOOL_BACKEND=name)
    assert (done.returncode, done.stderr) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[:7])
    assert (lines["mlx_unpool"], lines["mlx"]) == (mlx_unpool.__version__, version("mlx"))
    assert "(cpu)" in lines["devices"]
    missing = "" if not name or AVAILABLE[name] else ", not available on this machine"
    assert lines["backend"] in ([f"{name}{missing}"] if name else BACKENDS)
    assert done.stdout.endswith("\n\nCheck every kernel: python -m mlx_unpool check\n")


Unprintable = type("Unprintable", (), {"__repr__": lambda self: 1 / 0})
NAMES = [
    *(("gpu", "'gpu'"), (1000 * "x", "a very long str"), (10**5000, "an unprintable int")),
    *(
        (["ops"], "['ops']"),
        (np.array([2, 2]), "array([2, 2])"),
        (mx.zeros((2,)), "an array of shape (2,)"),
    ),
    (Unprintable(), "an unprintable Unprintable"),
]


def test_an_unknown_backend_is_refused():
    for name, printed in NAMES:
        with pytest.raises(ValueError, match="must be") as caught:
            mlx_unpool.use_backend(name)  # also without ``with``
        expected = "must be 'ops', 'metal' or 'cuda' but got"
        assert str(caught.value) == f"[use_backend] 'name' {expected} {printed}."
    done = run("-m", "mlx_unpool", MLX_UNPOOL_BACKEND="gpu")
    message = f"[mlx_unpool] 'MLX_UNPOOL_BACKEND' {expected} 'gpu'."
    assert (done.returncode, done.stdout, done.stderr.strip()) == (1, "", message)


MISSING = [name for name in BACKENDS if not AVAILABLE[name]]


@pytest.mark.parametrize("name", MISSING)
def test_a_backend_that_this_machine_cannot_run_is_refused(name):
    expected = f"must be a backend that this machine can run but got '{name}'."
    if name == "metal":
        expected += " To export functions for a Mac, enter exporting() first."
    with pytest.raises(RuntimeError) as caught:
        mlx_unpool.use_backend(name)
    assert str(caught.value) == f"[use_backend] 'name' {expected}"
    code = "import mlx.core as mx, mlx_unpool\nmlx_unpool.max_pool1d(mx.zeros((2, 1)), 2)"
    done = run("-c", code, MLX_UNPOOL_BACKEND=name)
    message = f"RuntimeError: [mlx_unpool] 'MLX_UNPOOL_BACKEND' {expected}"
    assert done.stderr.splitlines()[-1] == message


def test_plain_operations_run_on_the_cpu_whatever_the_stream_of_a_call(monkeypatch):
    """A stream of the CPU counts as one of a GPU, by the hook of the emulated GPU."""
    stream, used, enter = mx.new_stream(mx.cpu), [], mx.stream
    monkeypatch.setattr(mlx_unpool._backends, "is_gpu_stream", lambda other: other == stream)
    monkeypatch.setattr(mx, "stream", lambda chosen: used.append(chosen) or enter(chosen))
    with mlx_unpool.use_backend("ops"):
        mx.eval(mx.grad(lambda x: mlx_unpool.max_pool1d(x, 2, stream=stream).sum())(LINE))
    assert used
    assert all(chosen == mx.default_stream(mx.cpu) for chosen in used)


INTERRUPTED = """
import contextvars, random, signal
import mlx.core as mx, mlx_unpool

def repeat_until_a_signal(call, seconds):
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while True:
            call()
    except KeyboardInterrupt:
        pass

def enter():
    with mlx_unpool.exporting(), mlx_unpool.use_backend("ops"), mlx_unpool.checking():
        pass

def there(x):
    pooled = mlx_unpool.max_pool2d(x, 3, 2, 1, return_indices=True)
    return mlx_unpool.max_unpool2d(*pooled, 3, 2, 1, output_size=x.shape)

def evaluate():
    with mlx_unpool.exporting():
        y = mlx_unpool.max_pool2d(x, 2)
    z = mlx_unpool.adaptive_max_pool2d(x, next(sizes) % 15 + 1)
    mx.eval(there(x), y, z, mx.vmap(there)(x[None]), gradient(x))

state = lambda: dict(contextvars.copy_context())
enter()  # from here on the context contains every setting
before, sizes, x = state(), iter(range(10**9)), mx.random.normal((2, 17, 19, 4))
gradient = mx.grad(lambda x: (there(x) ** 2).sum())
expected = gradient(x)
mx.eval(expected)
random.seed(0)
signal.signal(signal.SIGALRM, signal.default_int_handler)  # as for Ctrl-C
for call, count, shortest, longest in ((enter, 5000, 1e-6, 6e-5), (evaluate, 300, 1e-5, 8e-3)):
    for _ in range(count):
        repeat_until_a_signal(call, random.uniform(shortest, longest))
        assert state() == before, call
assert mx.array_equal(gradient(x), expected)
print("alive")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork and no SIGALRM")
def test_a_signal_at_any_moment_leaves_nothing_broken():
    """About 1 in 20 signals in ``enter`` arrive between entering a context and its first line."""
    result = run("-c", INTERRUPTED)
    assert (result.returncode, result.stdout) == (0, "alive\n"), result.stderr


@pytest.mark.parametrize("command", ["info", "check", "benchmark"])
def test_a_program_whose_output_is_closed_ends_without_a_traceback(command):
    command, pipe = [sys.executable, "-m", "mlx_unpool", command], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as program:
        program.stdout.readline()
        program.stdout.close()
        assert program.stderr.read() == ""


@pytest.mark.skipif(mx.is_available(mx.gpu), reason="there is a GPU here")
def test_the_self_test_explains_itself_and_needs_a_gpu():
    """tests/metal runs it on the emulated device."""
    said, done = (run("-m", "mlx_unpool", "check", *words) for words in (["--help"], []))
    assert (said.returncode, done.returncode, done.stderr) == (0, 2, "")
    assert "Exit status: 0 if" in said.stdout
    assert done.stdout.startswith("```text\nmlx_unpool ")
    assert "no kernel was tested" in done.stdout.lower()
    for module, command in {"selftest": "check", "benchmark": "benchmark"}.items():
        no_command = run("-m", f"mlx_unpool.{module}")
        assert (no_command.returncode, no_command.stdout) == (1, "")
        assert no_command.stderr.endswith(f": python -m mlx_unpool {command}\n")


def test_the_commands_explain_themselves_and_an_unknown_one_is_refused():
    said = run("-m", "mlx_unpool", "--help")
    assert (said.returncode, said.stderr) == (0, "")
    assert [word for word in ("info", "check", "benchmark") if word not in said.stdout] == []
    assert run("-m", "mlx_unpool", "info").stdout == run("-m", "mlx_unpool").stdout
    assert "--seconds" in run("-m", "mlx_unpool", "benchmark", "--help").stdout
    assert run("-m", "mlx_unpool", "bench").returncode == 2
