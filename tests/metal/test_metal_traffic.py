"""The memory traffic of the kernels, in lines of memory, and the stored results of benchmarks."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import emulator
import harness
import mlx.core as mx
import mlx_nn
import numpy as np
import plain_mlx
import pytest

import mlx_unpool
from mlx_unpool import _backends
from mlx_unpool._arguments import window_of
from mlx_unpool._geometry import WindowGeometry

INTERMEDIATE = ("outside_window", "winner_bits", "winner")  # arrays between two kernels of a call
NHWC, VOLUME, NCHW = (1, 1, 56, 56, 64), (1, 8, 28, 28, 64), (8, 1, 56, 56, 1)
WINDOWS = {  # a shape (B, D, H, W, C), and kernel, stride and padding
    "2x2/2": (NHWC, ((1, 2, 2), (1, 2, 2))),
    "2x2x2/2": (VOLUME, (2,)),
    "3x3/2": (NHWC, ((1, 3, 3), (1, 2, 2), (0, 1, 1))),
    "3x3/1": (NHWC, ((1, 3, 3), 1, (0, 1, 1))),
    "2x2/2, channels first": (NCHW, ((1, 2, 2), (1, 2, 2))),
}
PAGE = Path(__file__).parents[2] / "metal" / "README.md"
# primitive, rule, windows, then figures for window indices and for flat indices
ROW = r"^\| `(\w+)`(?:, `(\w+)`)? \| (.+?) \| ([\d.]+) / ([\d.]+) \| ([\d.]+) / ([\d.]+) \|$"
TABLE = re.findall(ROW, PAGE.read_text(), re.MULTILINE)


def call_of(primitive: str, window: str, index_format: str, dtype: mx.Dtype) -> Callable[[], Any]:
    """A call of a primitive, whose indices are those of pooling."""
    name, _, rule = primitive.partition(" ")
    shape, parameters = WINDOWS[window][0], window_of("", 3, *WINDOWS[window][1])
    g = WindowGeometry(shape[1:4], parameters.pooled_size(shape[1:4]), parameters)
    x = mx.random.normal(shape, key=mx.random.key(0)).astype(dtype)
    index_dtype, metal = mx.int32 if index_format == "flat" else mx.uint8, _backends.get("metal")
    with mx.stream(mx.cpu):
        values, indices = _backends.get("ops").pool((x,), g, index_dtype)
        mx.eval(x, values, indices)
    if name == "pool":
        return lambda: metal.pool((x,), g, index_dtype)
    source = values if name == "scatter" else x
    return lambda: getattr(metal, name)(source, indices, g, rule)


def lines_over_bytes(call: Callable[[], Any], lines: str = "simd_lines") -> float:
    """The bytes of the lines that groups of threads touch, over those needed."""
    touched, unique = 0, {}
    for key, traffic in emulator.counted(call).traffic():
        touched += 128 * traffic[lines]
        unique[key] = max(unique.get(key, 0), traffic["unique_bytes"])
    return touched / sum(n for (name, _), n in unique.items() if name not in INTERMEDIATE)


@pytest.mark.parametrize(("primitive", "rule", "windows", *"abcd"), TABLE)
def test_the_page_shows_the_counted_lines(primitive, rule, windows, a, b, c, d):
    for window in windows.split(", "):
        for index_format, *figures in (("window", a, b), ("flat", c, d)):
            call = call_of(f"{primitive} {rule}".strip(), window, index_format, mx.float32)
            counted = [lines_over_bytes(call, lines) for lines in ("simd_lines", "group_lines")]
            assert counted == pytest.approx(list(map(float, figures)), rel=0.1), window


@pytest.mark.parametrize("primitive", ["pool", "scatter last"])
def test_groups_of_threads_share_the_lines_of_rows(primitive):
    call = call_of(primitive, "2x2/2, channels first", "window", mx.float16)
    assert lines_over_bytes(call) <= 2.5
    assert lines_over_bytes(call, "group_lines") <= 1.15


@pytest.mark.parametrize("window", [(2, 2), (3, 2, 1)])
@pytest.mark.parametrize(("index_format", "forward", "both"), [("window", 1, 2), ("flat", 5, 10)])
def test_unpooling_flat_indices_takes_three_kernels_and_two_fills(
    index_format, forward, both, window
):
    """The default format has five times as many kernels as window indices, also in the gradient."""
    x, options = mx.zeros((1, 8, 8, 4)), {"return_indices": True, "index_format": index_format}
    values, indices = emulator.evaluated(
        lambda: mlx_unpool.max_pool2d(x, *window, **options), "cpu"
    )
    unpool = lambda v: mlx_unpool.max_unpool2d(v, indices, *window, output_size=(8, 8))
    assert emulator.counted(lambda: unpool(values)).dispatches == forward
    assert emulator.counted(lambda: mx.vjp(unpool, [values], [x])).dispatches == both


# ---- inference: no indices are written

LAYERS = {  # and the bytes of an index that training writes
    "2x2/2": (mlx_unpool.MaxPool2d(2), 1),
    "3x3/1": (mlx_unpool.MaxPool2d(3, 1, 1), 1),
    "one thread per large window": (mlx_unpool.MaxPool2d((1, 65), 1), 1),
    "several threads per large window": (mlx_unpool.MaxPool2d(9), 1),
    "adaptive": (mlx_unpool.AdaptiveMaxPool2d(25), 4),
    "fractional": (mlx_unpool.FractionalMaxPool2d(2, output_size=9), 4),
}


def written(call: Any) -> int:
    """The bytes that the last kernel of a call writes."""
    traffic = emulator.counted(call).reports[-1].traffic
    return sum(t["unique_bytes"] for (_, kind), t in traffic.items() if kind == "write")


@pytest.mark.parametrize("name", LAYERS)
def test_inference_writes_values_and_a_single_index(name):
    layer, index = LAYERS[name]
    shape = (33, 1, 1064, 1) if name.startswith("one thread") else (1, 56, 56, 8)
    x = mx.random.normal(shape, key=mx.random.key(0)).astype(mx.float16)
    least = layer(x).nbytes
    with mlx_unpool.exporting():
        assert written(lambda: layer.train()(x)) == least + 1
    assert written(lambda: layer.eval()(x)) == least + 1
    assert written(lambda: layer.train()(x)) == least + least // 2 * index


def test_images_share_the_bounds_of_adaptive_windows():
    call = lambda: mlx_unpool.adaptive_max_pool1d(
        mx.zeros((8, 16, 300)), 200, data_format="channels_first"
    )
    (launch,) = emulator.recorded([call])
    assert sum(np.prod(shape) for shape, _ in launch.inputs[1:]) < 2 * 202 + 20


# ---- dilation: the bytes read grow with the elements of windows, not with their distance


def read(kernel: int, dilation: int, index_format: str, backward: bool, stride: int = 1) -> float:
    """The pooled values that are read for each output, each with its index."""
    window = {"kernel_size": kernel, "stride": stride, "dilation": dilation}
    size = 255 * stride + dilation * (kernel - 1) + 1
    x = mx.random.normal((1, size, 1))
    options = {"return_indices": True, "index_format": index_format}
    pool = lambda x: mlx_unpool.max_pool1d(x, **window, **options)
    values, indices = emulator.evaluated(lambda: pool(x), "cpu")
    unpool = lambda: mlx_unpool.max_unpool1d(values, indices, **window, output_size=(size,))
    gradient = lambda: mx.vjp(lambda x: pool(x)[0], [x], [values])[1]
    traffic = emulator.counted(gradient if backward else unpool).reports[-1].traffic
    bytes_read = sum(traffic[name, "read"]["bytes"] for name in ("values", "indices"))
    return bytes_read / size / (values.itemsize + indices.itemsize)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("index_format", ["flat", "window"])
@pytest.mark.parametrize("dilation", [2, 64, 4096])
def test_an_output_reads_each_window_that_covers_it(dilation, index_format, backward):
    assert read(3, dilation, index_format, backward) <= 3


@pytest.mark.parametrize("stride", [1, 3, 4])
@pytest.mark.parametrize("index_format", ["flat", "window"])
def test_an_output_of_large_windows_reads_each_window_that_covers_it(index_format, stride):
    """70 elements, summed by the general kernel: a dilation of 5 gives the limit for one of 500."""
    near, far = (read(70, dilation, index_format, True, stride) for dilation in (5, 500))
    assert far <= 1.2 * near
    assert far <= 70


# ---- the ten lines of plain MLX


def call_and_arrays(
    call: str, pool: Any, unpool: Any
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A call of the table for these functions, and its arguments."""
    x = mx.random.normal((1, 56, 56, 64), key=mx.random.key(0))
    arguments = (x,)
    if call == "unpool":
        arguments = emulator.evaluated(lambda: pool(x), "cpu")
    return plain_mlx.functions(pool, unpool)[call], arguments


def library_figures(call: str, index_format: str) -> tuple[int, int]:
    """The launches of a call with this library, and the bytes that they move."""
    options = {"return_indices": True, "index_format": index_format}
    pool = partial(mlx_unpool.max_pool2d, kernel_size=2, **options)
    unpool = partial(mlx_unpool.max_unpool2d, kernel_size=2)
    function, arguments = call_and_arrays(call, pool, unpool)
    device = emulator.counted(lambda: function(*arguments))
    return device.dispatches, sum(traffic["unique_bytes"] for _, traffic in device.traffic())


@pytest.mark.parametrize("call", plain_mlx.CALLS)
def test_the_page_compares_launches_and_bytes_with_plain_mlx(call):
    function, arguments = call_and_arrays(call, plain_mlx.pool, plain_mlx.unpool)
    figures = [plain_mlx.launches(function, *arguments)]
    figures += [library_figures(call, index_format) for index_format in ("flat", "window")]
    size = 4 * 56 * 56 * 64  # bytes of the input
    row = " | ".join(f"{count}, {moved / size:.2f}" for count, moved in figures)
    assert f"| {call} | {row} |\n" in harness.PAGES[0].read_text()


@pytest.mark.parametrize("page", harness.PAGES, ids=lambda page: page.name)
def test_the_pages_show_the_stored_results(page):
    text = page.read_text()
    assert text == harness.with_tables(text), "run: python benchmarks/harness.py"


def test_a_row_is_the_slower_of_two_runs_and_not_shown_if_the_machine_was_busy():
    def row(ours: float, cpu: float) -> dict[str, Any]:
        return {"step": {"ours": [ours, cpu], "mlx.nn": [2.0, 2.0]}}

    runs = [{"rows": [row(1, 1), row(1, 0.8)]}, {"rows": [row(1.1, 1), row(1, 1)]}]
    assert mlx_nn.confirmed(runs, "step") == [row(1.1, 1)]
