"""``as_on_a_mac.py`` runs a process with the emulated GPU as the default device."""

import subprocess
import sys
import textwrap
from pathlib import Path

import as_on_a_mac

ROOT = Path(__file__).parent.parent.parent


def run(program: str, status: int = 0) -> str:
    """The output of a program that runs as on a Mac."""
    command = [sys.executable, as_on_a_mac.__file__, "-c", textwrap.dedent(program)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert result.returncode == status, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_the_device_of_a_call_decides_which_backend_runs():
    program = """
    import threading
    import mlx.core as mx
    import mlx_unpool
    from emulated_mac import launched

    x = mx.random.normal((1, 6, 6, 3))

    def launches(call):
        before = launched["run"]
        mx.eval(call())
        return launched["run"] - before

    def pool(**options):
        return mlx_unpool.max_pool2d(x, 2, return_indices=True, **options)

    assert mx.default_device() == mx.Device(mx.gpu) and mx.metal.is_available()
    assert launches(pool) == launches(lambda: pool(stream=mx.gpu)) == 1
    assert launches(lambda: pool(stream=mx.cpu)) == 0
    assert launches(lambda: pool(stream=mx.new_stream(mx.gpu))) == 1
    with mx.stream(mx.cpu):
        assert launches(pool) == 0
        with mx.stream(mx.new_stream(mx.gpu)):
            assert launches(pool) == 1
    with mlx_unpool.use_backend("ops"):
        assert launches(pool) == 0
    assert launches(lambda: mx.vmap(mlx_unpool.MaxPool2d(2))(x[None])) == 1
    gradient = mx.grad(lambda x: mlx_unpool.max_pool2d(x, 3, 2, 1).sum())
    assert launches(lambda: gradient(x)) == 2

    found = []
    thread = threading.Thread(target=lambda: found.append(launches(pool)))
    thread.start()
    thread.join()
    assert found == [1]
    mx.set_default_device(mx.cpu)
    assert launches(pool) == 0
    print("as on a Mac")
    """
    assert run(program) == "as on a Mac\n"
