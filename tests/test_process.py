"""Processes and signals: interrupts, the self-test without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

ROOT = Path(__file__).parent.parent
UNIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork and no SIGALRM")
LIMIT = 300  # seconds, after which a process counts as hanging; each takes a few


def run(*command: str) -> subprocess.CompletedProcess:
    options = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": LIMIT}
    return subprocess.run([sys.executable, *command], **options)


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


@UNIX
def test_a_signal_at_any_moment_leaves_nothing_broken():
    """About 1 in 20 of the signals in ``enter`` arrive between entering a context and its first line."""
    result = run("-c", INTERRUPTED)
    assert (result.returncode, result.stdout) == (0, "alive\n"), result.stderr


@pytest.mark.parametrize("module", ["mlx_unpool", "mlx_unpool.selftest", "mlx_unpool.benchmark"])
def test_a_program_whose_output_is_closed_ends_without_a_traceback(module):
    command, pipe = [sys.executable, "-m", module], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as program:
        program.stdout.readline()
        program.stdout.close()
        assert program.stderr.read() == ""


@pytest.mark.skipif(mx.is_available(mx.gpu), reason="there is a GPU here")
def test_the_self_test_explains_itself_and_needs_a_gpu():
    """tests/metal runs it on the emulated device."""
    said, done = (run("-m", "mlx_unpool.selftest", *words) for words in (["--help"], []))
    assert (said.returncode, done.returncode) == (0, 2)
    assert "Exit status: 0 if" in said.stdout
    assert done.stdout.startswith("```text\nmlx_unpool ")
    assert "no kernel was tested" in done.stdout.lower()
