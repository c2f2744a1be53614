"""The memory traffic of the kernels, counted: lines of memory, dilation, and bytes compared with mlx.nn."""

from __future__ import annotations

from typing import Any

import emulator
import mlx.core as mx
import mlx_nn
import pytest

import mlx_unpool

DTYPES = (mx.float32, mx.float16, mx.bfloat16)
INTERMEDIATE = ("outside_window", "winner_bits", "winner")  # arrays between two kernels of a call
# rank, window, index format, and the most lines that SIMD groups touch, over unique bytes
LIMITS = [
    (2, (2, 2), "window", 1.15),
    (3, (2, 2), "window", 1.15),
    (2, (2, 2), "flat", 1.35),
    (3, (2, 2), "flat", 1.35),
    (2, (3, 2, 1), "window", 2.0),
    (2, (3, 2, 1), "flat", 2.0),
]


def lines_over_bytes(device: emulator.Emulator, last: int) -> float:
    """The bytes of all lines that SIMD groups touched in the last launches, over those that are needed."""
    lines, unique = 0, {}
    for launch, report in list(zip(device.launches, device.reports, strict=True))[-last:]:
        constant = {p["name"] for p in launch.parameters if "constant" in p["type"].split()}
        for key, traffic in report.traffic.items():
            if key[0] not in constant:
                lines += 128 * traffic["simd_lines"]
                unique[key] = max(unique.get(key, 0), traffic["unique_bytes"])
    return lines / sum(n for (name, _), n in unique.items() if name not in INTERMEDIATE)


@pytest.mark.parametrize(("rank", "window", "index_format", "most"), LIMITS)
def test_groups_of_threads_touch_few_lines_twice(rank, window, index_format, most):
    shape = (1, 56, 56, 64) if rank == 2 else (1, 8, 28, 28, 64)
    pool = getattr(mlx_unpool, f"MaxPool{rank}d")(
        *window, return_indices=True, index_format=index_format
    )
    unpool = getattr(mlx_unpool, f"MaxUnpool{rank}d").from_pool(pool)
    for dtype in DTYPES:
        x = mx.random.normal(shape, key=mx.random.key(0)).astype(dtype)
        device = emulator.Emulator(count=True)
        with device.installed():
            values, indices = pool(x)
            pooled = lines_over_bytes(device, 1)
            before = len(device.launches)
            mx.eval(unpool(values, indices, output_size=shape))
            placed = lines_over_bytes(device, len(device.launches) - before)
        assert placed <= most, dtype
        assert pooled <= most or window[0] == 3, dtype


# ---- inference: no indices are written

LAYERS = {  # and the bytes of an index that training writes
    "2x2/2": (mlx_unpool.MaxPool2d(2), 1),
    "3x3/1": (mlx_unpool.MaxPool2d(3, 1, 1), 1),
    "one thread per large window": (mlx_unpool.MaxPool2d((1, 65), 1), 1),
    "several threads per large window": (mlx_unpool.MaxPool2d(9), 1),
    "adaptive": (mlx_unpool.AdaptiveMaxPool2d(25), 4),
    "fractional": (mlx_unpool.FractionalMaxPool2d(2, output_size=9), 4),
}


def written(call: Any) -> tuple[int, int]:
    """The bytes that the last kernel of a call writes, and those of the result."""
    device = emulator.Emulator(count=True)
    with device.installed():
        values = call()
    traffic = device.reports[-1].traffic
    return sum(
        t["unique_bytes"] for (_, kind), t in traffic.items() if kind == "write"
    ), values.nbytes


@pytest.mark.parametrize("name", LAYERS)
def test_inference_writes_values_and_a_single_index(name):
    layer, index = LAYERS[name]
    shape = (33, 1, 1064, 1) if name.startswith("one thread") else (1, 56, 56, 8)
    x = mx.random.normal(shape, key=mx.random.key(0)).astype(mx.float16)
    with mlx_unpool.exporting():
        exported, least = written(lambda: layer.train()(x))
    assert exported == written(lambda: layer.eval()(x))[0] == least + 1
    assert written(lambda: layer.train()(x))[0] == least + least // 2 * index


# ---- dilation: the bytes read grow with the elements of windows, not with the distance between them

POOLED = 256  # values
BYTES = 4 + 4  # of a pooled value and its index


def read(
    kernel_size: int, dilation: int, index_format: str, backward: bool, stride: int = 1
) -> tuple[int, int]:
    """The bytes that the kernel reads that writes the outputs, and the number of outputs."""
    window = {"kernel_size": kernel_size, "stride": stride, "dilation": dilation}
    size = (POOLED - 1) * stride + dilation * (kernel_size - 1) + 1
    x = mx.random.normal((1, size, 1), key=mx.random.key(0))

    def pool(x: mx.array, **options: Any) -> Any:
        return mlx_unpool.max_pool1d(x, **window, **options)

    values, indices = emulator.evaluated(
        lambda: pool(x, return_indices=True, index_format=index_format), "cpu"
    )
    device = emulator.Emulator(count=True)
    with device.installed():
        if backward:
            mx.eval(mx.vjp(pool, [x], [values])[1])
        else:
            mx.eval(mlx_unpool.max_unpool1d(values, indices, **window, output_size=(size,)))
    counted = device.reports[-1].traffic
    return sum(counted[name, "read"]["bytes"] for name in ("values", "indices")), size


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("index_format", ["flat", "window"])
@pytest.mark.parametrize("dilation", [2, 64, 4096])
def test_an_output_reads_each_window_that_covers_it(dilation, index_format, backward):
    reads, outputs = read(3, dilation, index_format, backward)
    assert reads <= 3 * BYTES * outputs


@pytest.mark.parametrize("stride", [1, 3, 4])
@pytest.mark.parametrize("index_format", ["flat", "window"])
def test_an_output_of_large_windows_reads_each_window_that_covers_it(index_format, stride):
    """70 elements, summed by the general kernel: a dilation of 5 gives the limit for one of 500."""
    near, outputs = read(70, 5, index_format, True, stride)
    far, more_outputs = read(70, 500, index_format, True, stride)
    assert far / more_outputs <= 1.2 * near / outputs
    assert far <= 70 * BYTES * more_outputs


# ---- benchmarks/mlx_nn.py: the bytes of MLX's graph and of the kernels


def test_views_read_no_bytes_and_their_readers_read_the_array_they_show():
    x, row = mx.zeros((4, 6)), mx.zeros((6,))
    with mx.stream(mx.cpu):
        assert mlx_nn.graph_bytes(lambda x: mx.negative(x), x) == (192, 192)
        assert mlx_nn.graph_bytes(lambda x: mx.negative(x.T.reshape(2, 12)), x) == (192, 192)
        assert mlx_nn.graph_bytes(lambda x, y: x * y, x, row) == (216, 216)
        windows = lambda x: mx.negative(mx.as_strided(x, (4, 3), (1, 1)))  # noqa: E731
        assert mlx_nn.graph_bytes(windows, row) == (24 + 48, 48 + 48)


@pytest.mark.parametrize("name", ["2x2/2", "3x3/2", "1-D 3/2", "2x2x2/2"])
def test_kernels_access_each_byte_once_and_mlx_nn_at_least_twice_as_many(name):
    (case,) = (case for case in mlx_nn.CASES if case.name == name)
    case = case._replace(shape=(1, *(28,) * (len(case.shape) - 2), 16))
    with mx.stream(mx.cpu):
        figures = mlx_nn.counted(case)["bytes"]
        pooled = case.pools()["ours"](mx.zeros(case.shape))
    least = 2 * (4 * mx.zeros(case.shape).size + pooled.nbytes)
    indices = figures["ours"][0] - least
    assert indices == 2 * pooled.size  # one byte per pooled value, written once and read once
    for theirs, ours in zip(figures["mlx.nn"], figures["ours"]):
        assert theirs > 2 * ours
