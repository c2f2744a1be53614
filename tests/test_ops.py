"""The CPU's primitives: long windows, the types that only the CPU has, what ``mx.compile`` makes of them."""

from __future__ import annotations

import io
import re
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
import reference
from errors import fails

import mlx_unpool
from mlx_unpool._backends import cpu
from mlx_unpool._backends.cpu import maxima
from mlx_unpool._backends.cpu.maxima import keys
from mlx_unpool._geometry import Window, WindowGeometry

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra 'parity')")

FORMATS = ("flat", "window")


@pytest.fixture(autouse=True)
def cpu():
    with mx.stream(mx.cpu), mlx_unpool.use_backend("ops"):
        yield


@pytest.fixture(params=[0, 2**16], ids=["in blocks", "at once"])
def little(request, monkeypatch):
    """Both ways to look for a maximum in a long window: the test's arrays are small."""
    monkeypatch.setattr(maxima, "_LITTLE", request.param)


def operations(*arrays: mx.array) -> list[str]:
    """The names of the operations that are still to be done for arrays."""
    text = io.StringIO()
    mx.export_to_dot(text, *arrays)
    return re.findall(r'label ?="(\w+)", shape=rectangle', text.getvalue())


def planes(size: int, kind: str, count: int = 6) -> np.ndarray:
    """Planes (count, size) that are hard to pool."""
    random = np.random.default_rng(size)
    x = random.normal(size=(count, size)).astype(np.float32)
    if kind == "ties":
        x = random.integers(-1, 2, x.shape).astype(np.float32) * random.choice([1, -1], x.shape)
    elif kind == "nan":
        x[random.random(x.shape) < 3 / size] = np.nan
        x[0] = np.nan
    elif kind == "infinite":
        x = np.where(random.random(x.shape) < 3 / size, 1, -np.inf).astype(np.float32)
        x[0] = -np.inf
    return x


# Length, kernel, stride, padding, dilation
LONG = [
    (64, 64, 64, 0, 1),
    (1024, 1024, 1, 0, 1),
    (1021, 1021, 1, 0, 1),  # a prime number
    (300, 97, 101, 0, 1),
    (300, 67, 67, 0, 1),
    (260, 64, 32, 0, 1),
    (150, 32, 7, 0, 1),
    (150, 13, 1, 6, 1),
    (150, 63, 2, 31, 1),
    (100, 21, 4, 5, 3),
    (200, 40, 3, 20, 2),
    (90, 17, 30, 8, 2),
    (10, 200, 1, 100, 1),
    (10, 90, 5, 130, 3),
    (7, 8, 3, 28, 8),  # windows that step over the plane
]


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("kind", ["numbers", "ties", "nan", "infinite"])
@pytest.mark.parametrize("window", LONG)
def test_long_windows(window, kind):
    size, kernel, stride, padding, dilation = window
    pool = reference.Pool((kernel,), (stride,), (padding,), (dilation,))
    x = planes(size, kind)
    values, flat, offsets = reference.max_pool(x, pool)
    for index_format, expected in (("flat", flat), ("window", offsets)):
        for data_format in ("channels_first", "channels_last"):
            given = mx.array(x[None])
            last = data_format == "channels_last"
            found = mlx_unpool.max_pool1d(
                given.transpose(0, 2, 1) if last else given,
                *(kernel, stride, padding),
                dilation=dilation,
                return_indices=True,
                index_format=index_format,
                data_format=data_format,
            )
            ours, indices = (y.transpose(0, 2, 1)[0] if last else y[0] for y in found)
            assert np.array_equal(np.array(ours), values, equal_nan=True)
            if index_format == "window":
                indices = mx.where(mx.array(flat) < 0, 0, indices)
            assert np.array_equal(np.array(indices), expected)
            assert np.array_equal(np.signbit(np.array(ours)), np.signbit(values))


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float64, mx.int8, mx.uint16])
@pytest.mark.parametrize("window", [(150, 70, 70, 0, 1), (150, 33, 5, 16, 1)])
def test_long_windows_of_other_types(dtype, window):
    size, kernel, stride, padding, _ = window
    x = mx.array(planes(size, "ties" if mx.issubdtype(dtype, mx.integer) else "nan"))
    x = (mx.abs(x) if dtype == mx.uint16 else x).astype(dtype)
    plain = np.array(x.astype(mx.float32))
    pool = reference.Pool((kernel,), (stride,), (padding,), (1,))
    values, flat, _ = reference.max_pool(plain, pool)
    ours, indices = mlx_unpool.max_pool1d(
        x[None],
        *(kernel, stride, padding),
        return_indices=True,
        data_format="channels_first",
    )
    assert np.array_equal(np.array(ours[0].astype(mx.float32)), values, equal_nan=True)
    assert np.array_equal(np.array(indices[0]), flat)


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("window", [(40, 36, 1, 3), (40, 40, 40, 0), (40, 34, 3, 17)])
def test_long_windows_on_two_axes(window):
    size, kernel, stride, padding = window
    random = np.random.default_rng(0)
    x = random.integers(0, 9, (3, size, size)).astype(np.float32)
    pool = reference.Pool((kernel,) * 2, (stride,) * 2, (padding,) * 2, (1, 1))
    values, flat, offsets = reference.max_pool(x, pool)
    for index_format, expected in (("flat", flat), ("window", offsets)):
        ours, indices = mlx_unpool.max_pool2d(
            mx.array(x[None]),
            *(kernel, stride, padding),
            return_indices=True,
            index_format=index_format,
            data_format="channels_first",
        )
        assert np.array_equal(np.array(ours[0]), values)
        assert np.array_equal(np.array(indices[0]), expected)


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("size", [(1, 100), (7, 100), (3, 1000), (33, 150), (9, 101)])
@pytest.mark.parametrize("kind", ["numbers", "ties", "nan"])
def test_long_irregular_windows(size, kind):
    pooled, length = size
    x = planes(length, kind, 20)
    values, flat = torch.nn.functional.adaptive_max_pool1d(
        torch.from_numpy(x[None]), pooled, return_indices=True
    )
    for channels_first in (True, False):
        given = mx.array(x[None])
        found = mlx_unpool.adaptive_max_pool1d(
            given if channels_first else given.transpose(0, 2, 1),
            pooled,
            return_indices=True,
            data_format="channels_first" if channels_first else "channels_last",
        )
        ours, indices = (y if channels_first else y.transpose(0, 2, 1) for y in found)
        assert np.array_equal(np.array(ours), values.numpy(), equal_nan=True)
        assert np.array_equal(np.array(indices), flat.numpy())


@pytest.mark.usefixtures("little")
def test_long_random_windows_are_those_of_pytorch():
    x = planes(4096, "ties", 2).reshape(1, 2, 64, 64).astype(np.float32)
    samples = np.random.default_rng(1).random((1, 2, 2), np.float32)
    values, flat = torch.nn.functional.fractional_max_pool2d(
        torch.from_numpy(x),
        21,
        output_size=30,
        return_indices=True,
        # PyTorch has the numbers of the width first.
        _random_samples=torch.from_numpy(samples[..., ::-1].copy()),
    )
    ours, indices = mlx_unpool.fractional_max_pool2d(
        mx.array(x),
        21,
        output_size=30,
        return_indices=True,
        random_samples=mx.array(samples),
        data_format="channels_first",
    )
    assert np.array_equal(np.array(ours), values.numpy())
    assert np.array_equal(np.array(indices), flat.numpy())


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("stride", [1, 2, 3, "kernel"])
def test_operations_grow_with_the_logarithm_of_a_window(stride, padded):
    counts = []
    for bits in range(6, 13):
        kernel = 2**bits + 1
        x = mx.zeros((1, 4 * kernel, 8))
        step = kernel if stride == "kernel" else stride
        padding = kernel // 2 if padded else 0
        found = mlx_unpool.max_pool1d(x, kernel, step, padding, return_indices=True)
        counts.append(len(operations(*found)))
    assert max(b - a for a, b in pairwise(counts)) <= 32
    assert counts[-1] <= 300


def test_elements_outside_the_input_cost_nothing():
    found = mlx_unpool.max_pool1d(mx.ones((1, 10, 1)), 2**21, 1, padding=2**20, return_indices=True)
    assert len(operations(*found)) < 200
    assert found[0].shape == (1, 11, 1)
    assert found[0].min().item() == 1
    assert found[1].max().item() == 0


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("window", [(1, 0), ("kernel", 0), (1, "half")])
@pytest.mark.parametrize("index_format", FORMATS)
def test_a_long_window_gives_a_compiler_little_to_do(window, index_format):
    """Each fused text takes a C++ compiler half a second, whatever the window's length."""
    fused = []
    for kernel in (100, 1000):
        stride = kernel if window[0] == "kernel" else window[0]
        padding = kernel // 2 if window[1] == "half" else 0

        def pool(x, kernel=kernel, stride=stride, padding=padding):
            return mlx_unpool.max_pool1d(
                x, kernel, stride, padding, return_indices=True, index_format=index_format
            )

        found = mx.compile(pool)(mx.zeros((2, 2 * kernel, 8)))
        fused.append({name for name in operations(*found) if name.startswith("Compiled")})
    assert max(map(len, fused)) <= 5


@pytest.mark.parametrize("kernel", [2, 3])
@pytest.mark.parametrize("index_format", FORMATS)
def test_compiled_and_eager_are_equal(kernel, index_format):
    x = mx.random.normal((2, 15, 15, 16), key=mx.random.key(0))

    def both_ways(x):
        values, indices = mlx_unpool.max_pool2d(
            x, kernel, 2, kernel // 2, return_indices=True, index_format=index_format
        )
        back = mlx_unpool.max_unpool2d(values, indices, kernel, 2, kernel // 2, (15, 15))
        return values, indices, back, mx.maximum(values, 0) * 2

    for eager, compiled in zip(both_ways(x), mx.compile(both_ways)(x)):
        assert mx.array_equal(eager, compiled)


def test_keys_of_every_float16_are_in_their_order():
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    found = np.array(keys(mx.array(every))).astype(int)
    nan = np.isnan(every)
    assert (found[nan] > 0x7800).all()
    numbers, found = every[~nan].astype(np.float64), found[~nan]
    order = np.argsort(numbers, kind="stable")
    numbers, found = numbers[order], found[order]
    assert found[-1] == 0x7800
    assert np.array_equal(np.diff(numbers) > 0, np.diff(found) > 0)
    assert np.array_equal(np.diff(numbers) == 0, np.diff(found) == 0)


@pytest.mark.parametrize("index_format", FORMATS)
@pytest.mark.parametrize("window", [(2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 2)])
def test_float64(window, index_format):
    random = np.random.default_rng(0)
    # Numbers that float32 cannot tell apart
    x = 1 + random.permutation(2 * 17 * 19 * 3).reshape(2, 3, 17, 19) * 1e-12
    scale = random.normal(size=x.shape)
    theirs = torch.from_numpy(x).requires_grad_()
    functional = torch.nn.functional
    values, indices = functional.max_pool2d(theirs, *window, return_indices=True)
    if window[0] <= window[1]:
        back = functional.max_unpool2d(values, indices, *window, output_size=(17, 19))
    else:  # PyTorch's unpooling gives every one of several values a gradient
        back = theirs * 0
    (values.square().sum() + (back * torch.from_numpy(scale)).sum()).backward()

    layout = {"data_format": "channels_first"}

    def run(x):
        return mlx_unpool.max_pool2d(
            x, *window, return_indices=True, index_format=index_format, **layout
        )

    def loss(x):
        values, indices = run(x)
        result = values.square().sum()
        if window[0] <= window[1]:
            back = mlx_unpool.max_unpool2d(values, indices, *window, (17, 19), **layout)
            result = result + (back * mx.array(scale, mx.float64)).sum()
        return result

    ours = mx.array(x, mx.float64)
    found, where = run(ours)
    assert found.dtype == mx.float64
    assert np.array_equal(np.array(found), values.detach().numpy())
    if index_format == "flat":
        assert np.array_equal(np.array(where), indices.numpy())
    unpooled = mlx_unpool.max_unpool2d(found, where, *window, (17, 19), **layout)
    expected = functional.max_unpool2d(values, indices, *window, output_size=(17, 19))
    assert np.array_equal(np.array(unpooled), expected.detach().numpy())
    gradient = mx.grad(loss)(ours)
    assert gradient.dtype == mx.float64
    assert np.allclose(np.array(gradient), theirs.grad.numpy(), rtol=1e-14, atol=1e-14)


def test_float64_derivatives_agree_with_finite_differences():
    x = mx.random.permutation(mx.arange(2 * 9 * 9 * 3), key=mx.random.key(0))
    x = x.reshape(2, 9, 9, 3).astype(mx.float64) / 486
    direction = mx.array(np.random.default_rng(0).normal(size=x.shape), mx.float64)

    def loss(x):
        values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
        return (mlx_unpool.max_unpool2d(values * values, indices, 2) * direction[:, :8, :8]).sum()

    step = 1e-6
    slope = (loss(x + step * direction) - loss(x - step * direction)) / (2 * step)
    expected = (mx.grad(loss)(x) * direction).sum()
    assert abs((slope / expected).item() - 1) < 1e-7


@pytest.mark.parametrize("backend", ["metal", "cuda"])
def test_no_gpu_has_float64(backend):
    x, indices = mx.zeros((1, 4, 1), mx.float64), mx.zeros((1, 2, 1), mx.int32)
    with mlx_unpool.use_backend(backend):
        fails(lambda: mlx_unpool.max_pool1d(x, 2), TypeError, "max_pool1d", "x", "float64")
        adaptive = lambda: mlx_unpool.adaptive_max_pool1d(x, 3)  # noqa: E731
        fails(adaptive, TypeError, "adaptive_max_pool1d", "x", "float64")
        unpool = lambda: mlx_unpool.max_unpool1d(x[:, :2], indices, 2)  # noqa: E731
        fails(unpool, TypeError, "max_unpool1d", "x", "float64")


@pytest.mark.parametrize("images", [2, 5, 11])
def test_big_batches_are_done_in_parts(images, monkeypatch):
    size = (1, 6, 8)
    window = Window((1, 2, 2), (1, 2, 2))
    g = WindowGeometry(size, window.pooled_size(size), window)
    full = mx.random.normal((images, *size, 4), key=mx.random.key(0))
    indices = mx.random.randint(-3, 60, (images, *g.pooled, 4), key=mx.random.key(1))
    whole = cpu.Ops().pick_winners(full, indices, g)
    monkeypatch.setattr(ops, "_MUCH", 0)
    parts = cpu.Ops().pick_winners(full, indices, g)
    assert "Concatenate" in operations(parts)
    assert mx.array_equal(whole, parts)
