"""Exported models and functions run in processes that do not have this package."""

import subprocess
import sys
import textwrap

import mlx.core as mx
import pytest
from support.kernel_cases import SegNet

import mlx_unpool

RUN_ELSEWHERE = """
    import sys
    import mlx.core as mx
    sys.modules["mlx_unpool"] = None  # importing it fails from here on
    function = mx.import_function(sys.argv[1])
    arrays = mx.load(sys.argv[2])
    mx.savez(sys.argv[3], **{name: function(x)[0] for name, x in arrays.items()})
"""


def test_a_whole_segnet_of_two_sizes_runs_without_the_package(tmp_path):
    model, sizes = SegNet().eval(), [(1, 16, 16, 2), (2, 22, 35, 2)]
    given = {f"input{n}": mx.random.normal(size) for n, size in enumerate(sizes)}
    path, inputs, results = (str(tmp_path / name) for name in ("net.mlxfn", "in.npz", "out.npz"))
    with mlx_unpool.exporting(), mx.exporter(path, model) as exporter:
        for size in sizes:
            exporter(mx.zeros(size))
    mx.savez(inputs, **given)
    command = [sys.executable, "-I", "-c", textwrap.dedent(RUN_ELSEWHERE), path, inputs, results]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=120)
    for name, got in mx.load(results).items():
        assert mx.array_equal(got, model(given.pop(name)))
    assert not given


X = mx.random.normal((2, 9, 10, 3), key=mx.random.key(0))
SAMPLES = mx.random.uniform(shape=(2, 3, 2), key=mx.random.key(1))
INDICES = {"return_indices": True}
WINDOW = {"index_format": "window", **INDICES}
SIZE, KEY = {"output_size": (9, 10)}, {"key": mx.random.key(3)}
# first array, further arguments, options
CALLS = {
    "max_pool1d": (X[0], (3, 2, 1), INDICES),
    "max_pool2d": (X, (3, 2, 1), INDICES),
    "max_pool2d, values": (X, (3, 2, 1), {}),
    "max_pool2d, same": (X, (3, 2, "same"), INDICES),
    "max_pool3d": (X, (2,), INDICES),
    "max_unpool1d": (X[0], (2,), {}),
    "max_unpool2d": (X, (2,), SIZE),
    "max_unpool2d, without a window": (X, (None,), SIZE),
    "max_unpool2d, window indices": (X, (2,), SIZE),
    "max_unpool3d": (X, (2,), {}),
    "adaptive_max_pool1d": (X[0], (4,), INDICES),
    "adaptive_max_pool2d": (X, ((4, 3),), INDICES),
    "adaptive_max_pool3d": (X, ((2, 4, 3),), INDICES),
    "fractional_max_pool2d": (X, (2,), {"output_size": (6, 7), **INDICES}),
    "fractional_max_pool3d": (X, ((1, 2, 2),), {"output_size": (2, 6, 7), **KEY, **INDICES}),
}


def function_of(name: str):
    """A function of arrays, and its arrays."""
    x, arguments, options = CALLS[name]
    name, _, kind = name.partition(", ")
    function = getattr(mlx_unpool, name)
    if "unpool" in name:
        pool = getattr(mlx_unpool, name.replace("unpool", "pool"))
        pair = pool(x, 2, **(WINDOW if kind == "window indices" else INDICES))
        return lambda v, i: function(v, i, *arguments, **options), list(pair)
    if name == "fractional_max_pool2d":
        return lambda x, u: function(x, *arguments, **options, random_samples=u), [x, SAMPLES]
    return lambda x: function(x, *arguments, **options), [x]


FUNCTIONS = {name: function_of(name) for name in CALLS}
FUNCTIONS["convert_indices"] = (
    lambda i: mlx_unpool.convert_indices(i, "flat", "onnx_column_major", (9, 10)),
    FUNCTIONS["max_unpool2d"][1][1:],
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_can_be_exported(name, tmp_path):
    function, inputs = FUNCTIONS[name]
    path = str(tmp_path / "function.mlxfn")
    with mlx_unpool.exporting():
        mx.export_function(path, function, *inputs)
    expected = function(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for a, b in zip(mx.import_function(path)(*inputs), expected, strict=True):
        assert a.dtype == b.dtype
        assert mx.array_equal(a, b)
    # Windows depend on the size, and MLX's Slice and View cannot infer shapes: MLX raises an error.
    with mlx_unpool.exporting():
        mx.export_function(path, function, *inputs, shapeless=True)
    with pytest.raises(ValueError, match=r"infer output shapes|annot reshape|cannot be broadcast"):
        mx.import_function(path)(*(mx.concatenate([x, x]) for x in inputs))


def operations(function, inputs: list[mx.array]) -> set[str]:
    """The operations in an export for Metal."""
    events: list[dict] = []
    with mlx_unpool.exporting(), mlx_unpool.use_backend("metal"):
        mx.export_function(events.append, function, *inputs)
    return {event["name"] for event in events if event["type"] == "primitive"}


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name[:3] in ("max", "ada")])
def test_an_export_for_metal_computes_in_kernels_only(name):
    found = operations(*FUNCTIONS[name])
    assert "CustomKernel" in found
    copy_nothing = {"Reshape", "View", "ExpandDims", "Broadcast"}
    assert found <= {"CustomKernel", *copy_nothing}


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "convert_indices"])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_a_derivative_inside_is_refused(name, dtype):
    """MLX could differentiate some of the operations, but less exactly."""
    function, (x, *rest) = FUNCTIONS[name]
    x = x.astype(dtype)

    def values(x):
        out = function(x, *rest)
        return out[0] if isinstance(out, tuple) else out

    total = lambda x: values(x).sum()
    for derivative in (
        lambda: mx.grad(total)(x),
        lambda: mx.value_and_grad(total)(x),
        lambda: mx.vjp(values, [x], [values(x)]),
        lambda: mx.jvp(values, [x], [x]),
        lambda: mx.vmap(mx.grad(total))(mx.stack([x, x])),
    ):
        inside = r"^\[exporting\] .* inside exporting\(\)"
        with pytest.raises(ValueError, match=inside), mlx_unpool.exporting():
            derivative()
        derivative()
    with mlx_unpool.exporting():  # mapping, and gradients that do not pass through the function
        assert mx.array_equal(mx.vmap(values)(mx.stack([x, x]))[1], values(x))
        gradient = mx.grad(lambda x: mx.stop_gradient(values(x)).sum() + x.sum())(x)
        assert mx.array_equal(gradient, mx.ones_like(x))


def test_other_errors_inside_stay_as_they_are():
    with pytest.raises(ValueError, match="of another call"), mlx_unpool.exporting():
        raise ValueError("of another call")
    with pytest.raises(KeyError), mlx_unpool.exporting():
        raise KeyError
