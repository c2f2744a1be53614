"""Processes and signals: workers of ``multiprocessing``, interrupts at any moment, optimised Python."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import mlx_unpool

ROOT = Path(__file__).parent.parent
CAN_FORK = hasattr(os, "fork")
UNIX = pytest.mark.skipif(not CAN_FORK, reason="os.fork is not available")
# Neither Metal nor CUDA works in a child of fork(): docs/reliability.md recommends "spawn".
GPU = mx.is_available(mx.gpu)
FORK = pytest.mark.skipif(not CAN_FORK or GPU, reason="a GPU does not work after a fork")
LIMIT = 120  # seconds, after which a process that hangs is ended


def numbers(seed: int) -> list[float]:
    """Sums of unpooled values, of gradients and of the results of random and adaptive windows."""
    mx.random.seed(seed)
    x = mx.random.normal((2, 9, 9, 3))
    pool = mlx_unpool.MaxPool2d(3, 2, 1, return_indices=True)
    unpool = mlx_unpool.MaxUnpool2d.from_pool(pool)
    full = unpool(*pool(x), output_size=x.shape)
    gradient = mx.grad(lambda x: (unpool(*pool(x), output_size=x.shape) ** 2).sum())(x)
    random = mlx_unpool.fractional_max_pool2d(x, 2, output_size=4)
    adaptive = mlx_unpool.adaptive_max_pool2d(x, 4)
    return [array.sum().item() for array in (full, gradient, random, adaptive)]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_are_started_afresh_work(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"{method} is not available")
    expected = [
        numbers(seed) for seed in range(4)
    ]  # these workers have not used MLX, this process has
    with multiprocessing.get_context(method).Pool(2) as workers:
        assert workers.map_async(numbers, range(4)).get(timeout=LIMIT) == expected


def run(program: str, *options: str, **environment: str) -> str:
    """What a program prints in a separate Python process."""
    command = [sys.executable, *options, "-c", textwrap.dedent(program)]
    output = {"capture_output": True, "text": True, "timeout": LIMIT}
    result = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, **output)
    assert result.returncode == 0, result.stderr
    return result.stdout


FORKED = """
    import multiprocessing, os, signal
    import mlx.core as mx, mlx_unpool

    def work(seed):
        mx.random.seed(seed)
        x = mx.random.normal((2, 9, 9, 3))
        values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
        gradient = mx.grad(lambda x: (mlx_unpool.max_pool2d(x, 3, 2, 1) ** 2).sum())(x)
        full = mlx_unpool.max_unpool2d(values, indices, 2, output_size=x.shape)
        return full.sum().item(), gradient.sum().item()

    def in_a_child(function):
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # ends a child that hangs
            try:
                function()
                os._exit(0)
            except BaseException:
                os._exit(1)
        return os.waitpid(child, 0)[1]
"""


@FORK
def test_workers_that_are_forked_before_mlx_runs_work():
    """Importing the package starts no thread and uses no device, so a forked process works."""
    program = """
    with multiprocessing.get_context("fork").Pool(2) as workers:
        got = workers.map(work, range(4))
    print(got == [work(seed) for seed in range(4)])
    """
    assert run(FORKED + program) == "True\n"


@FORK
def test_a_process_that_is_forked_after_mlx_has_run_needs_a_new_stream():
    """A limit of MLX: the child lacks the threads of its streams, so even x + 1 never ends."""
    program = """
    x = mx.random.normal((1, 8, 8, 2))
    expected = mlx_unpool.max_pool2d(x, 2)
    mx.eval(x, expected)

    def traces():
        mlx_unpool.max_pool2d(x, 2)

    def runs():
        with mx.stream(mx.new_stream(mx.cpu)):
            assert work(0)[0] != 0
            assert mx.array_equal(mlx_unpool.max_pool2d(x, 2), expected)

    print(in_a_child(traces), in_a_child(runs))
    """
    assert run(FORKED + program) == "0 0\n"


def test_a_process_ends_after_threads_that_cleared_their_streams():
    """Without mx.clear_streams() MLX aborts in some of these runs: docs/reliability.md."""
    program = """
    import threading
    import mlx.core as mx, mlx_unpool

    @mx.compile
    def unpool(x):
        return mlx_unpool.max_unpool1d(*mlx_unpool.max_pool1d(x, 2, return_indices=True), 2)

    def work():
        mx.eval(unpool(mx.random.normal((1, 8, 2))))
        mx.clear_streams()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    mx.eval(unpool(mx.ones((1, 8, 2))))
    print("ended")
    """
    for _ in range(3):
        assert run(program) == "ended\n"


@UNIX
def test_ctrl_c_during_an_evaluation_is_a_keyboard_interrupt_and_no_more():
    program = """
    import os, signal, threading, time
    import mlx.core as mx, mlx_unpool

    x = mx.random.normal((8, 256, 256, 16))
    mx.eval(x)
    expected = mlx_unpool.max_pool2d(x, 3, 2, 1)
    mx.eval(expected)
    caught = 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # even if the parent process ignores it
    for delay in (0, 0.001, 0.003, 0.01, 0.03):
        y = mlx_unpool.max_pool2d(x, 3, 2, 1)
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            mx.eval(y)
            time.sleep(5)
        except KeyboardInterrupt:
            caught += 1
        timer.join()
        assert mx.array_equal(y, expected)  # evaluated before the interrupt, or now
    print(caught)
    """
    assert run(program) == "5\n"


@pytest.mark.parametrize("options", [("-O",), ("-OO",)])
def test_optimised_python_checks_and_computes_the_same(options):
    """These options remove assertions, so arguments must not be checked by assertions."""
    program = """
    import mlx.core as mx, mlx_unpool
    x = mx.array([1.0, 3, 2, 5]).reshape(1, 4, 1)
    for index_format in ("flat", "window"):
        pool = mlx_unpool.MaxPool1d(2, return_indices=True, index_format=index_format)
        print(mlx_unpool.MaxUnpool1d.from_pool(pool)(*pool(x), 4).reshape(-1).tolist())
    print(mx.grad(lambda x: mlx_unpool.max_pool1d(x, 3, 1).sum())(x).reshape(-1).tolist())
    print(mlx_unpool.adaptive_max_pool1d(x, 3).reshape(-1).tolist())
    flat, offsets = mx.zeros((1, 4, 1), mx.int32), mx.zeros((1, 4, 1), mx.uint8)
    pool, unpool = mlx_unpool.max_pool1d, mlx_unpool.max_unpool1d
    check, convert = mlx_unpool.check_indices, mlx_unpool.convert_indices
    for call in (
        *(lambda: pool(x, 0), lambda: pool(x, 2, padding=2), lambda: pool(x, 5)),
        *(lambda: unpool(x, flat, None), lambda: unpool(x, flat, 2, output_size=99)),
        lambda: unpool(x, offsets, None, output_size=4),
        *(lambda: convert(offsets, "window", "flat", 4), lambda: convert(flat, "flat", "window", 4)),
        *(lambda: check(flat + 9, 4), lambda: check(offsets, 4)),
    ):
        try:
            call()
            raise SystemExit("no error")
        except ValueError as error:
            print(str(error).split("must")[0])
    """
    expected = run(program).splitlines()
    assert len(expected) == 14
    assert run(program, *options).splitlines() == expected


def test_without_mlx_compile_everything_is_the_same():
    program = """
    import sys
    sys.path[:0] = ["tests", "tests/support"]
    import mlx.core as mx
    import transforms
    for row, cases in transforms.ROWS.items():
        for case in cases:
            for column in ("compile, sizes", "compile of grad", "grad of grad", "vmap of grad"):
                compute = transforms.COLUMNS[column]
                assert transforms.same(compute(case, False), compute(case, True)), (row, column)
    print("same")
    """
    assert run(program, MLX_DISABLE_COMPILE="1") == "same\n"


def test_asynchronous_evaluation_gives_the_same():
    x, window = mx.random.normal((4, 33, 31, 8)), (3, 2, 1)

    def there_and_back(x):
        values, indices = mlx_unpool.max_pool2d(x, *window, return_indices=True)
        return mlx_unpool.max_unpool2d(values, indices, *window, output_size=x.shape)

    def both():
        return [there_and_back(x), mx.grad(lambda x: (there_and_back(x) ** 2).sum())(x)]

    expected, running = both(), []
    mx.eval(expected)
    for _ in range(20):  # all begin before the first result is read
        running.append(both())
        mx.async_eval(*running[-1])
    for pair in running:
        assert all(mx.array_equal(a, b) for a, b in zip(pair, expected, strict=True))
    y = x
    for _ in range(5):  # each depends on one that still runs
        y = there_and_back(y)
        mx.async_eval(y)
    assert mx.array_equal(y, there_and_back(there_and_back(there_and_back(expected[0]))))


def test_arrays_may_come_from_memory_maps_read_only_views_and_files(tmp_path):
    array = np.random.default_rng(0).standard_normal((2, 12, 14, 3)).astype(np.float32)
    values, flat = mlx_unpool.max_pool2d(mx.array(array), 2, return_indices=True)
    full = mlx_unpool.max_unpool2d(values, flat, 2)
    array.tofile(tmp_path / "array")
    path = str(tmp_path / "a.safetensors")
    mx.save_safetensors(path, {"x": mx.array(array), "values": values, "indices": flat})
    file = mx.load(path)  # which MLX reads lazily
    views = [np.memmap(tmp_path / "array", np.float32, "r", shape=array.shape), array.copy()]
    views[1].setflags(write=False)
    for view in (*views, np.repeat(array, 2, axis=1)[:, ::2], file["x"]):
        got, indices = mlx_unpool.max_pool2d(mx.array(view), 2, return_indices=True)
        assert mx.array_equal(got, values)
        assert mx.array_equal(indices, flat)
    read_only = np.array(flat)
    read_only.setflags(write=False)
    assert mx.array_equal(mlx_unpool.max_unpool2d(values, mx.array(read_only), 2), full)
    unpool = lambda v: mlx_unpool.max_unpool2d(v, file["indices"], 2)  # noqa: E731
    assert mx.array_equal(unpool(file["values"]), full)
    assert mx.grad(lambda v: unpool(v).sum())(mx.load(path)["values"]).sum()


@UNIX
def test_a_signal_inside_a_context_ends_the_context():
    """A signal can arrive between entering the context and its first line: about 1 in 20 of these do."""
    program = """
    import random, signal
    import mlx_unpool
    from mlx_unpool import _backends, _derivatives, _indices

    class Interrupted(Exception):
        pass

    def interrupt(*_):
        raise Interrupted

    state = lambda: [v.get() for v in (_derivatives._exporting, _backends._forced, _indices._checking)]
    before = state()
    signal.signal(signal.SIGALRM, interrupt)
    for _ in range(5000):
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 6e-5))
            while True:
                with mlx_unpool.exporting(), mlx_unpool.use_backend("ops"), mlx_unpool.checking():
                    pass
        except Interrupted:
            pass
        assert state() == before
    print("ended")
    """
    assert run(program) == "ended\n"


@UNIX
def test_a_signal_at_any_moment_leaves_nothing_broken():
    """A handler that raises, as Ctrl-C does, hundreds of times in the middle of calls and of ``eval``."""
    program = """
    import random, signal
    import mlx.core as mx, mlx_unpool
    from mlx_unpool import _backends

    class Interrupted(Exception):
        pass

    def interrupt(*_):
        raise Interrupted

    x = mx.random.normal((2, 17, 19, 4))
    there = lambda x: mlx_unpool.max_unpool2d(
        *mlx_unpool.max_pool2d(x, 3, 2, 1, return_indices=True), 3, 2, 1, output_size=x.shape
    )
    sizes = iter(range(2, 10**9))

    def call(x):
        with mlx_unpool.exporting(), mlx_unpool.use_backend("ops"):
            y = mlx_unpool.max_pool2d(x, 2)
        z = mlx_unpool.adaptive_max_pool2d(x, next(sizes) % 15 + 1)
        return there(x).sum() + y.sum() + z.sum() + mx.vmap(there)(x[None]).sum()

    gradient = mx.grad(lambda x: (there(x) ** 2).sum())
    expected = gradient(x)
    mx.eval(expected)
    signal.signal(signal.SIGALRM, interrupt)
    random.seed(0)
    for _ in range(500):
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 8e-3))
            while True:
                mx.eval(call(x), gradient(x))
        except Interrupted:
            pass
    assert _backends._forced.get() is None
    assert mx.array_equal(gradient(x), expected)  # an error if exporting() were still in effect
    print("alive")
    """
    assert run(program) == "alive\n"


@pytest.mark.skipif(mx.metal.is_available() or mx.cuda.is_available(), reason="a GPU is available")
def test_the_self_test_says_what_it_checks_and_that_it_needs_a_gpu():
    """tests/metal runs it on the emulated device."""
    command = [sys.executable, "-m", "mlx_unpool.selftest"]
    options = {"capture_output": True, "text": True, "cwd": ROOT}
    said, done = (subprocess.run([*command, *words], **options) for words in (["--help"], []))
    assert (said.returncode, done.returncode) == (0, 2)
    assert "bit for bit" in said.stdout
    assert "Exit status: 0 if" in said.stdout
    assert done.stdout.startswith("```text\nmlx_unpool ")
    assert "no kernel was tested" in done.stdout.lower()
