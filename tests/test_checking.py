"""Checked mode and check_indices: what unpooling would drop or misplace without a word."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace

import mlx.core as mx
import pytest
from errors import fails

import mlx_unpool
from mlx_unpool import MaxUnpool2d, _backends, check_indices, checking, max_pool2d, max_unpool2d

X = mx.arange(20.0).reshape(1, 4, 5, 1)  # pools to 2 x 2, as 4 x 4 does
TRAP = max_pool2d(X, 2, return_indices=True)


def test_the_trap_is_silent_without_it():
    assert max_unpool2d(*TRAP, 2).shape == (1, 4, 4, 1)
    with checking():
        pass
    assert max_unpool2d(*TRAP, 2).shape == (1, 4, 4, 1)


def test_indices_of_another_plane_are_named_with_the_way_out():
    for caller, call in (
        ("max_unpool2d", lambda: max_unpool2d(*TRAP, 2)),
        ("MaxUnpool2d", lambda: MaxUnpool2d(2)(*TRAP)),
    ):
        with checking():
            fails(call, ValueError, caller, "indices", "6 at (0, 0, 0, 0)", "output_size=(4, 5)")


def test_both_ways_out_of_the_trap():
    with checking():
        expected = max_unpool2d(*TRAP, 2, output_size=X.shape)
        values, indices = max_pool2d(X, 2, return_indices=True, index_format="window")
        smaller = max_unpool2d(values, indices, 2)
    assert mx.array_equal(smaller, expected[:, :, :4])


def test_another_window_is_named():
    values, indices = max_pool2d(mx.random.normal((1, 9, 9, 2)), 3, 2, return_indices=True)
    with checking():
        call = lambda: max_unpool2d(values, indices, 2, output_size=(8, 8))  # noqa: E731
        fails(call, ValueError, "max_unpool2d", "indices", "those of the pool?")
    values, indices = max_pool2d(
        -mx.arange(36.0)[::-1].reshape(1, 6, 6, 1), 3, return_indices=True, index_format="window"
    )
    assert indices.max().item() > 3
    with checking():
        call = lambda: max_unpool2d(values, indices, 2)  # noqa: E731
        fails(call, ValueError, "max_unpool2d", "indices", "0 to 3", "those of the pool?")


def test_without_a_window_the_plane_alone_counts():
    with checking():
        max_unpool2d(*TRAP, None, output_size=(4, 5))
        call = lambda: max_unpool2d(*TRAP, None, output_size=(4, 4))  # noqa: E731
        fails(call, ValueError, "max_unpool2d", "indices", "0 to 15", "16 at (0, 1, 0, 0)")


def test_good_indices_of_every_kind_pass():
    x = mx.random.normal((2, 3, 9, 10))
    with checking():
        for data_format in ("channels_last", "channels_first"):
            for window in ((2,), (3, 2, 1), (3, 1, 1)):
                for index_format in ("flat", "window"):
                    values, indices = max_pool2d(
                        x,
                        *window,
                        return_indices=True,
                        index_format=index_format,
                        data_format=data_format,
                    )
                    options = {"output_size": x.shape, "data_format": data_format}
                    max_unpool2d(values, indices, *window, **options)


def test_inside_transformations():
    values, indices = TRAP
    unpool = lambda v, i: max_unpool2d(v, i, 2)  # noqa: E731
    with checking():
        assert mx.compile(unpool)(values, indices).shape == (1, 4, 4, 1)  # silent
        assert mx.vmap(unpool)(values[None], indices[None]).shape == (1, 1, 4, 4, 1)  # silent
        call = lambda: mx.grad(lambda v: unpool(v, indices).sum())(values)  # noqa: E731
        fails(call, ValueError, "max_unpool2d", "indices", "output_size=(4, 5)")


def test_it_holds_for_one_thread():
    shapes = []
    with checking():
        thread = threading.Thread(target=lambda: shapes.append(max_unpool2d(*TRAP, 2).shape))
        thread.start()
        thread.join()
    assert shapes == [(1, 4, 4, 1)]


@pytest.mark.parametrize(("value", "fails_"), [("1", True), ("0", False), ("", False)])
def test_the_environment_variable_holds_for_a_process(value, fails_):
    code = (
        "import mlx.core as mx, mlx_unpool as m\n"
        "v, i = m.max_pool2d(mx.arange(20.0).reshape(1, 4, 5, 1), 2, return_indices=True)\n"
        "m.max_unpool2d(v, i, 2)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"MLX_UNPOOL_CHECK": value},
        capture_output=True,
        text=True,
    )
    assert (done.returncode != 0) == fails_, done.stderr
    assert ("output_size=(4, 5)" in done.stderr) == fails_


def test_check_indices_takes_full_shapes_and_windows():
    _, indices = TRAP
    for size in ((4, 5), (1, 4, 5, 1)):
        assert check_indices(indices, size) is None
        assert check_indices(indices, size, 2) is None
    call = lambda: check_indices(indices, (5, 4), 2)  # noqa: E731
    fails(call, ValueError, "check_indices", "indices", "in their own window", "Pass output_size")
    call = lambda: check_indices(indices, (2, 4, 5, 1))  # noqa: E731
    fails(call, ValueError, "check_indices", "output_size", "(1, 2, 2, 1)", "(2, 4, 5, 1)")
    sequence = mx.array([[1], [3]])  # without a batch
    assert check_indices(sequence, (5, 1), 2) is None
    assert check_indices(sequence, 5, 2) is None


def test_a_backend_can_be_forced(monkeypatch):
    x = mx.random.normal((1, 4, 4, 2))
    with mlx_unpool.use_backend("ops"):
        assert mlx_unpool.max_pool2d(x, 2).shape == (1, 2, 2, 2)
        # Derivatives are the library's, too: those of MLX's maximum go to the other element.
        gradient = mx.grad(lambda x: mlx_unpool.max_pool1d(x, 2).sum())
        assert gradient(mx.array([[1.0], [float("nan")]])).tolist() == [[0], [1]]
    with pytest.raises(
        ValueError, match=r"\[use_backend\] 'name' must be 'ops' or 'metal' or 'cuda'"
    ):
        mlx_unpool.use_backend("gpu").__enter__()
    code = (
        "import mlx.core as mx, mlx_unpool; print(mlx_unpool.max_pool1d(mx.ones((2, 1)), 2).item())"
    )
    for value, expected in (("ops", "1.0"), ("", "1.0"), ("gpu", "MLX_UNPOOL_BACKEND")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"MLX_UNPOOL_BACKEND": value},
            capture_output=True,
            text=True,
        )
        assert expected in done.stdout + done.stderr


def test_plain_operations_run_on_the_cpu_wherever_a_call_was_to_run():
    stream = SimpleNamespace(device=SimpleNamespace(type=mx.gpu))  # as there is no GPU here
    with mlx_unpool.use_backend("ops"):
        place = _backends.where(stream)
    assert place == (mx.default_stream(mx.cpu), _backends.get("ops"))
