"""Adaptive and fractional pooling: literal cases, the reference, derivatives, layers, bad input."""

from __future__ import annotations

import itertools
import tracemalloc

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
import reference
from arrays import FLOATS, irregular_cases
from errors import fails

import mlx_unpool
from mlx_unpool import (
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    fractional_max_pool2d,
    fractional_max_pool3d,
    max_unpool2d,
)
from mlx_unpool._backends import cpu
from mlx_unpool._geometry import WindowGeometry, adaptive_geometry, fractional_geometry
from mlx_unpool._layout import bounds_array

SEEDS = range(6)
CASES = 40  # a seed


def test_adaptive_windows_of_unlike_lengths():
    x = mx.array([5.0, 1, 4, 2, 3]).reshape(5, 1)
    values, indices = adaptive_max_pool1d(x, 3, return_indices=True)  # [0, 2), [1, 4), [3, 5)
    assert values.reshape(-1).tolist() == [5, 4, 3]
    assert indices.reshape(-1).tolist() == [0, 2, 4]


def test_more_adaptive_windows_than_places():
    values, indices = adaptive_max_pool1d(mx.array([[7.0], [8.0]]), 5, return_indices=True)
    assert values.reshape(-1).tolist() == [7, 7, 8, 8, 8]
    assert indices.reshape(-1).tolist() == [0, 0, 1, 1, 1]


def test_none_keeps_an_axis():
    x = mx.random.normal((2, 5, 7, 3))
    assert adaptive_max_pool2d(x, (None, 2)).shape == (2, 5, 2, 3)
    assert mx.array_equal(adaptive_max_pool2d(x, (None, None)), x)
    assert mx.array_equal(adaptive_max_pool2d(x, 1)[:, 0, 0], x.max(axis=(1, 2)))


def test_ties_and_nan_in_adaptive_windows():
    x = mx.array([3.0, 3, np.nan, np.nan, 1, -np.inf, -np.inf]).reshape(7, 1)
    values, indices = adaptive_max_pool1d(x, 4, return_indices=True)  # 0-1, 1-3, 3-5, 5-6
    assert indices.reshape(-1).tolist() == [0, 3, 3, 5]
    assert mx.isnan(values.reshape(-1)).tolist() == [False, True, True, False]
    assert values[3].item() == -np.inf


def test_fractional_windows_start_where_the_formula_says():
    x = mx.arange(9.0).reshape(1, 9, 1)  # ascending: the last place of a window wins
    # a = (9 - 2) / (4 - 1); floor((i + 0.5) * a) - floor(0.5 * a) = 0, 2, 4, and the last one at 7
    values = fractional_max_pool2d(
        x, (1, 2), output_size=(1, 4), random_samples=mx.array([[[0.9, 0.5]]])
    )
    assert values.reshape(-1).tolist() == [1, 3, 5, 8]


def test_a_key_makes_fractional_pooling_reproducible():
    x = mx.random.normal((2, 20, 20, 8))
    pool = mlx_unpool.FractionalMaxPool2d(2, output_ratio=0.6)
    one, two, other = (pool(x, key=mx.random.key(n)) for n in (1, 1, 2))
    assert mx.array_equal(one, two)
    assert not mx.array_equal(one, other)
    mx.random.seed(5)
    first, then = pool(x), pool(x)
    mx.random.seed(5)
    assert mx.array_equal(pool(x), first)
    assert not mx.array_equal(first, then)


def test_images_and_channels_draw_their_own_windows():
    x = mx.broadcast_to(mx.arange(40.0)[:, None], (3, 1, 40, 4))
    starts = fractional_max_pool2d(x, (1, 2), output_size=(1, 15), key=mx.random.key(0))
    rows = {tuple(row) for row in starts.transpose(0, 3, 1, 2).reshape(12, 15).tolist()}
    assert len(rows) == 5  # as many as there are for this size


def test_random_samples_out_of_range_stay_inside_the_plane():
    x = mx.random.normal((1, 9, 9, 2))
    # Only numbers about 2^24 come out behind the plane: float32 rounds them up by more than a window.
    for wild in (-5.0, 7.0, np.inf, -np.inf, np.nan, 1e30, 2.0**24, 2.0**25, -(2.0**24)):
        pool = lambda x, u=wild: fractional_max_pool2d(  # noqa: E731
            x, 2, output_size=5, random_samples=mx.full((1, 2, 2), u), return_indices=True
        )
        values, indices = pool(x)
        assert mx.array_equal(indices, pool(x, 1.0 if wild > 0 else 0.0)[1])
        assert ((indices >= 0) & (indices < 81)).all().item()
        # In the last window of each axis, and so in the plane, whatever the number.
        assert (indices[0, 4] // 9 >= 7).all().item()
        assert (indices[0, :, 4] % 9 >= 7).all().item()
        gradient = mx.grad(lambda x, pool=pool: pool(x)[0].sum())(x)
        assert gradient.sum().item() == values.size  # none is lost
        flat = x.reshape(81, 2)
        picked = mx.take_along_axis(flat, indices.reshape(25, 2), axis=0)
        assert mx.array_equal(picked, values.reshape(25, 2))


def test_windows_are_drawn_where_sums_look_for_them():
    random = np.random.default_rng(0)
    for length in (*random.integers(2, 60, 300), *random.integers(60, 2**20, 30)):
        kernel = random.integers(1, min(length, 5) + 1)
        count = random.integers(1, min(length - kernel + 1, 3000) + 1)
        g = fractional_geometry((1, 1, int(length)), (1, 1, int(count)), (1, 1, int(kernel)))
        for u in (0.0, 1.0, 1 - 2**-24, *random.random(5)):
            (axis,) = reference.fractional_bounds(
                (length,), (count,), (kernel,), np.array([u], np.float32)
            )
            for number, (start, stop) in enumerate(axis):
                for position in {start, stop - 1}:
                    first, following = g.covering(2, position)
                    assert first <= number < following <= count


def test_where_adaptive_windows_lie_is_what_their_definition_says():
    """The closed forms, on integers and on arrays, against a walk over every window and position."""
    for length, count in itertools.product(range(1, 27), range(1, 30)):
        ends = [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]
        lengths, starts = {b - a for a, b in ends}, [a for a, _ in ends]
        steps = {b - a for a, b in itertools.pairwise(starts)} or {length}
        g = adaptive_geometry((1, 1, length), (1, 1, count))
        alike = len(lengths) == len(steps) == 1 and steps != {0}
        assert isinstance(g, WindowGeometry) == alike
        if isinstance(g, WindowGeometry):
            assert (g.window.kernel[2], g.window.stride[2]) == (*lengths, *steps)
            continue
        assert g.longest[2] == max(lengths)
        covering = [[i for i, (a, b) in enumerate(ends) if a <= p < b] for p in range(length)]
        walked = [(inside[0], inside[-1] + 1) for inside in covering]
        for listed, formula, counts, expected in (
            (g.bounds_table, g.ends, g.pooled, ends),
            (g.covering_table, g.covering, g.size, walked),
        ):
            for table in (pairs(listed, formula, counts), pairs(None, formula, counts)):
                assert list(map(tuple, table[2:].tolist())) == expected


def test_windows_of_long_axes_are_worked_out_by_arithmetic_and_kept_nowhere():
    """More windows than fit into a list; and so many that a list of them would take seconds."""
    x = mx.random.randint(-128, 127, (1, 9001, 2)).astype(mx.int8)
    values, indices = adaptive_max_pool1d(x, 4000, return_indices=True)
    ends = reference.adaptive_bounds((9001,), (4000,))
    for channel in range(2):
        expected, flat = reference.max_pool_bounds(np.array(x[0, :, channel]), ends)
        assert mx.array_equal(values[0, :, channel], mx.array(expected))
        assert mx.array_equal(indices[0, :, channel], mx.array(flat))
    tracemalloc.start()
    x = mx.broadcast_to(mx.array(0, mx.int8), (1, 1, 2**28 + 1, 1))
    for count in range(2**27, 2**27 + 20):
        adaptive_max_pool2d(x, (1, count), return_indices=True)
        fractional_max_pool2d(x, (1, 3), output_size=(1, count))
        mx.grad(lambda x, n=count: adaptive_max_pool2d(x, (1, n)).sum())
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 2**20


@pytest.mark.parametrize("seed", SEEDS)
def test_values_and_indices_are_those_of_the_reference(seed):
    for case in irregular_cases(CASES, seed):
        x = case.layout.arrange(case.planes, case.dtype)
        values, indices = case.max_pool(x)
        expected, flat = case.expected()
        assert (values.dtype, indices.dtype) == (case.dtype, mx.int32)
        np.testing.assert_array_equal(case.layout.planes_of(indices), flat, err_msg=str(case))
        np.testing.assert_array_equal(case.layout.planes_of(values), expected, err_msg=str(case))


@pytest.mark.parametrize("seed", SEEDS)
def test_indices_unpool_without_a_window(seed):
    for case in irregular_cases(CASES, seed + 100):
        values, indices = case.max_pool(case.layout.arrange(case.planes, case.dtype))
        expected, flat = case.expected()
        got = case.layout.planes_of(case.max_unpool(values, indices))
        np.testing.assert_array_equal(got, reference.max_unpool(expected, flat, case.size))


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_are_those_of_the_reference(seed):
    random = np.random.default_rng(seed)
    for case in irregular_cases(CASES, seed + 200, dtypes=FLOATS):
        x = case.layout.arrange(case.planes, case.dtype)
        _, flat = case.expected()
        cotangent = random.integers(-3, 4, flat.shape).astype(np.float32)
        _, (got,) = mx.vjp(
            lambda x, case=case: case.max_pool(x)[0],
            [x],
            [case.layout.arrange(cotangent, case.dtype)],
        )
        expected = reference.max_pool_vjp(cotangent, flat, case.size)
        np.testing.assert_array_equal(case.layout.planes_of(got), expected, err_msg=str(case))


def test_values_indices_and_gradients_are_those_of_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra 'parity')")
    functional = torch.nn.functional
    random = np.random.default_rng(0)
    taken = 0
    for case in irregular_cases(400, seed=300, dtypes=(mx.float32,)):
        rank = case.layout.rank
        planes = torch.from_numpy(case.planes[None]).requires_grad_()
        if case.kernel is None:
            pool = getattr(functional, f"adaptive_max_pool{rank}d")
            values, flat = pool(planes, case.cells, return_indices=True)
        else:
            if rank == 3 and any(
                n + k > length for n, k, length in zip(case.cells, case.kernel, case.size)
            ):
                continue  # PyTorch's 3-D pool takes one size less than fits
            # PyTorch's 2-D pool wants the width first, its 3-D pool the depth.
            samples = case.samples[None, :, ::-1] if rank == 2 else case.samples[None]
            pool = getattr(functional, f"fractional_max_pool{rank}d_with_indices")
            values, flat = pool(
                planes,
                case.kernel,
                output_size=case.cells,
                _random_samples=torch.from_numpy(samples.copy()),
            )
        cotangent = random.integers(-3, 4, values.shape).astype(np.float32)
        (gradient,) = torch.autograd.grad(values, planes, torch.from_numpy(cotangent))

        x = case.layout.arrange(case.planes, case.dtype)
        _, indices = case.max_pool(x)
        (got,), (pulled,) = mx.vjp(
            lambda x, case=case: case.max_pool(x)[0],
            [x],
            [case.layout.arrange(cotangent[0], case.dtype)],
        )
        for ours, theirs in ((got, values.detach()), (indices, flat), (pulled, gradient)):
            np.testing.assert_array_equal(
                case.layout.planes_of(ours), theirs[0].numpy(), err_msg=str(case)
            )
        taken += 1
    assert taken > 250


def test_where_adaptive_windows_are_alike_an_ordinary_pool_runs(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("not the fast path")

    monkeypatch.setattr(cpu.Ops, "pool_regions", refuse)
    x = mx.random.normal((2, 12, 9, 3))
    for size, kernel, stride in (((4, 3), 3, 3), ((1, 1), (12, 9), 1), ((11, 4), (2, 3), (1, 2))):
        got = adaptive_max_pool2d(x, size, return_indices=True)
        expected = mlx_unpool.max_pool2d(x, kernel, stride, return_indices=True)
        assert all(mx.array_equal(a, b) for a, b in zip(got, expected, strict=True))
    with pytest.raises(AssertionError, match="fast"):
        adaptive_max_pool2d(x, (5, 3))


def test_no_images_and_no_channels():
    for shape in ((0, 6, 6, 3), (2, 6, 6, 0)):
        x = mx.zeros(shape, mx.float16)
        for values, indices in (
            adaptive_max_pool2d(x, (4, 5), return_indices=True),
            fractional_max_pool2d(x, 2, output_size=(4, 5), return_indices=True),
        ):
            assert values.shape == indices.shape == (shape[0], 4, 5, shape[3])
            assert (values.dtype, indices.dtype) == (mx.float16, mx.int32)


def test_layers_say_what_they_are():
    assert repr(mlx_unpool.AdaptiveMaxPool1d(3)) == "AdaptiveMaxPool1d(output_size=3)"
    layer = mlx_unpool.AdaptiveMaxPool3d(
        [None, 2, 3], return_indices=True, data_format="channels_first"
    )
    assert layer.output_size == (None, 2, 3)
    assert repr(layer) == (
        "AdaptiveMaxPool3d(output_size=(None, 2, 3), return_indices=True, "
        "data_format='channels_first')"
    )
    assert repr(mlx_unpool.FractionalMaxPool2d(2, output_ratio=(0.5, 0.6))) == (
        "FractionalMaxPool2d(kernel_size=2, output_size=None, output_ratio=(0.5, 0.6))"
    )
    assert not mlx_unpool.FractionalMaxPool3d(2, output_size=3).parameters()


def test_layers_give_what_functions_give():
    x = mx.random.normal((2, 9, 8, 7, 3))
    key = mx.random.key(3)
    pairs = [
        (
            mlx_unpool.AdaptiveMaxPool3d((2, None, 3))(x),
            mlx_unpool.adaptive_max_pool3d(x, (2, 8, 3)),
        ),
        (
            mlx_unpool.FractionalMaxPool3d(2, output_size=(5, 4, 3))(x, key=key),
            fractional_max_pool3d(x, 2, output_size=(5, 4, 3), key=key),
        ),
        (mlx_unpool.AdaptiveMaxPool2d(4)(x[0], stream=mx.cpu), adaptive_max_pool2d(x[0], 4)),
    ]
    for got, expected in pairs:
        assert mx.array_equal(got, expected)


@pytest.mark.parametrize(
    "pool",
    [
        mlx_unpool.AdaptiveMaxPool2d((3, 5), return_indices=True),
        mlx_unpool.FractionalMaxPool2d(2, output_ratio=0.6, return_indices=True),
    ],
)
def test_an_unpooling_layer_is_made_from_these_pools(pool):
    x = mx.abs(mx.random.normal((2, 8, 8, 3)))
    unpool = mlx_unpool.MaxUnpool2d.from_pool(pool)
    values, indices = pool(x)
    full = unpool(values, indices, output_size=x.shape)
    assert mx.array_equal(full, max_unpool2d(values, indices, None, output_size=(8, 8)))
    assert mx.array_equal(mx.where(full > 0, full, x), x)
    with pytest.raises(TypeError, match=r"mlx_unpool\.MaxPool1d"):
        mlx_unpool.MaxUnpool1d.from_pool(pool)


def test_a_ratio_is_rounded_down():
    x = mx.zeros((1, 10, 9, 1))
    assert fractional_max_pool2d(x, 2, output_ratio=0.5).shape == (1, 5, 4, 1)
    assert fractional_max_pool2d(x, 2, output_ratio=[0.79, 0.5]).shape == (1, 7, 4, 1)


def test_a_model_learns_through_these_layers():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(1, 4, 3, padding=1)
            self.shrink = mlx_unpool.FractionalMaxPool2d(2, output_ratio=0.7, return_indices=True)
            self.grow = mlx_unpool.MaxUnpool2d.from_pool(self.shrink)
            self.head = mlx_unpool.AdaptiveMaxPool2d(3)
            self.last = nn.Linear(36, 2)

        def __call__(self, x):
            x = self.first(x)
            y = self.grow(*self.shrink(x), output_size=x.shape)
            return self.last(self.head(x + y).flatten(1))

    mx.random.seed(0)
    model, x = Model(), mx.random.normal((6, 10, 11, 1))
    wanted = (x.mean(axis=(1, 2, 3)) > 0).astype(mx.int32)
    step = nn.value_and_grad(model, lambda m: nn.losses.cross_entropy(m(x), wanted).mean())
    losses = []
    for _ in range(40):
        loss, gradients = step(model)
        model.update(nn.utils.tree_map(lambda p, g: p - 0.1 * g, model.parameters(), gradients))
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


SIZES = [
    (0, ValueError, "1 or more"),
    (-1, ValueError, "1 or more"),
    ((2, 0), ValueError, "1 or more"),
    ((2, 2, 2), ValueError, "2 axes"),
    ((), ValueError, "2 axes"),
    (None, TypeError, "an integer"),
    (2.0, TypeError, "an integer"),
    (True, TypeError, "an integer"),
    ((2, "3"), TypeError, "an integer"),
]


@pytest.mark.parametrize(("size", "error", "allowed"), SIZES)
def test_adaptive_pools_name_a_wrong_size(size, error, allowed):
    x = mx.zeros((1, 8, 8, 2))
    what = "output_size", allowed, repr(size)
    fails(lambda: adaptive_max_pool2d(x, size), error, "adaptive_max_pool2d", *what)
    fails(lambda: mlx_unpool.AdaptiveMaxPool2d(size), error, "AdaptiveMaxPool2d", *what)


FRACTIONS = [
    ({"kernel_size": 0, "output_size": 2}, ValueError, "kernel_size", "1 or more"),
    ({"kernel_size": 2.0, "output_size": 2}, TypeError, "kernel_size", "an integer"),
    ({"kernel_size": 2, "output_size": 0}, ValueError, "output_size", "1 or more"),
    ({"kernel_size": 2, "output_size": (2, 2, 2)}, ValueError, "output_size", "2 integers"),
    ({"kernel_size": 2, "output_ratio": 1.0}, ValueError, "output_ratio", "between 0 and 1"),
    ({"kernel_size": 2, "output_ratio": (0.5,)}, ValueError, "output_ratio", "2 axes"),
    ({"kernel_size": 2, "output_ratio": float("nan")}, ValueError, "output_ratio", "between"),
    ({"kernel_size": 2, "output_ratio": "half"}, TypeError, "output_ratio", "a number"),
    ({"kernel_size": 2, "output_ratio": True}, TypeError, "output_ratio", "a number"),
]


@pytest.mark.parametrize(("arguments", "error", "name", "allowed"), FRACTIONS)
def test_fractional_pools_name_what_is_wrong(arguments, error, name, allowed):
    x = mx.zeros((1, 8, 8, 2))
    what = name, allowed, repr(arguments[name])
    fails(lambda: fractional_max_pool2d(x, **arguments), error, "fractional_max_pool2d", *what)
    layer = mlx_unpool.FractionalMaxPool2d
    fails(lambda: layer(**arguments), error, "FractionalMaxPool2d", *what)


def test_fractional_pools_take_a_size_or_a_ratio():
    for given in ({}, {"output_size": 3, "output_ratio": 0.5}):
        with pytest.raises(
            ValueError, match=r"^\[FractionalMaxPool2d\] exactly one of 'output_size' and"
        ):
            mlx_unpool.FractionalMaxPool2d(2, **given)


X = mx.zeros((1, 8, 8, 2))
CALLS = [
    ({"output_size": 8}, ValueError, "output_size", "(7, 7)"),
    ({"output_ratio": 0.1}, ValueError, "output_ratio", "(7, 7)"),
    ({"output_size": 4, "key": 3}, TypeError, "key", "int"),
    ({"output_size": 4, "key": mx.zeros((2,))}, ValueError, "key", "uint32"),
    ({"output_size": 4, "random_samples": [0.5]}, TypeError, "random_samples", "list"),
    (
        {"output_size": 4, "random_samples": X.astype(mx.int32)},
        TypeError,
        "random_samples",
        "int32",
    ),
    ({"output_size": 4, "random_samples": X}, ValueError, "random_samples", "(1, 2, 2)"),
    (
        {"output_size": 4, "random_samples": mx.zeros((1, 2, 2)), "key": mx.random.key(0)},
        *(ValueError, "key", "None"),
    ),
    ({"output_size": 4, "return_indices": 1}, TypeError, "return_indices", "1"),
    ({"output_size": 4, "data_format": "NHWC"}, ValueError, "data_format", "NHWC"),
    ({"output_size": 4, "stream": "gpu"}, TypeError, "stream", "str"),
]


@pytest.mark.parametrize(("arguments", "error", "name", "part"), CALLS)
def test_calls_of_fractional_pools_name_what_is_wrong(arguments, error, name, part):
    call = lambda: fractional_max_pool2d(X, 2, **arguments)  # noqa: E731
    fails(call, error, "fractional_max_pool2d", name, part)


@pytest.mark.parametrize(
    ("x", "error", "part"),
    [
        ([1.0], TypeError, "list"),
        (mx.zeros((4, 4, 4), mx.bool_), TypeError, "bool"),
        (mx.zeros((4, 4)), ValueError, "(4, 4)"),
        (mx.zeros((1, 0, 4, 2)), ValueError, "(0, 4)"),
    ],
)
def test_wrong_inputs_are_named(x, error, part):
    fails(lambda: adaptive_max_pool2d(x, 2), error, "adaptive_max_pool2d", "x", part)
    call = lambda: fractional_max_pool2d(x, 1, output_size=1)  # noqa: E731
    fails(call, error, "fractional_max_pool2d", "x", part)


def random_pool(x, key=None):
    return fractional_max_pool2d(x, 2, output_ratio=0.6, key=key)


def seeded(call, seed=1):
    mx.random.seed(seed)
    return call()


def test_checkpoint_draws_anew_unless_a_key_is_an_argument():
    x, key = mx.random.normal((2, 20, 20, 3)), mx.random.key(3)
    again = mx.checkpoint(random_pool)
    plain = seeded(lambda: mx.grad(lambda x: random_pool(x).sum())(x))
    other = seeded(lambda: mx.grad(lambda x: again(x).sum())(x))
    assert not mx.array_equal(plain, other)
    expected = mx.grad(lambda x: random_pool(x, key).sum())(x)
    assert mx.array_equal(mx.grad(lambda x: again(x, key).sum())(x), expected)


def test_vmap_draws_once_for_all_unless_each_has_its_key():
    x, keys = mx.random.normal((2, 20, 20, 3)), mx.random.split(mx.random.key(3), 4)
    many = mx.broadcast_to(x, (4, *x.shape))
    shared = mx.vmap(random_pool)(many)
    assert all(mx.array_equal(one, shared[0]) for one in shared)
    each = mx.vmap(random_pool)(many, keys)
    assert all(mx.array_equal(one, random_pool(x, key)) for one, key in zip(each, keys))
    assert not mx.array_equal(each[0], each[1])


def test_compile_keeps_the_first_draw_unless_the_state_or_a_key_goes_in():
    x, key = mx.random.normal((2, 20, 20, 3)), mx.random.key(3)
    frozen = mx.compile(random_pool)
    assert mx.array_equal(frozen(x), frozen(x))
    state = mx.random.state
    drawn = mx.compile(random_pool, inputs=state, outputs=state)
    first, second = seeded(lambda: (drawn(x), drawn(x)))
    assert not mx.array_equal(first, second)
    assert mx.array_equal(seeded(lambda: random_pool(x)), first)
    assert mx.array_equal(mx.compile(random_pool)(x, key), random_pool(x, key))


def test_derivatives_with_respect_to_where_windows_lie_are_zero():
    x, samples = mx.random.normal((2, 9, 8, 3)), mx.random.uniform(shape=(2, 3, 2))

    def pool(x, samples):
        return fractional_max_pool2d(x, 2, output_size=4, random_samples=samples)

    for tangents, expected in (((mx.zeros_like(x), samples), 0), ((x, samples), None)):
        _, (tangent,) = mx.jvp(pool, [x, samples], list(tangents))
        full = pool(x, samples) if expected is None else mx.zeros((2, 4, 4, 3))
        assert mx.array_equal(tangent, full)
    _, (tangent,) = mx.jvp(lambda u: pool(x, u), [samples], [samples])
    assert not tangent.any().item()
    assert not mx.grad(lambda u: pool(x, u).sum())(samples).any().item()


@pytest.mark.parametrize("dtype", FLOATS)
def test_long_windows_find_what_stands_in_their_middle(dtype):
    """Windows of dozens of elements are put together from parts: maxima, ties, NaN and large numbers."""
    random = np.random.default_rng(0)
    for size, count in ((200, 3), (331, 4), (100, 7), (64, 1), (640, 10)):
        for kind in ("spread", "ties", "nan"):
            plane = random.standard_normal(size).astype(np.float32) * 40000
            plane = np.round(plane / 20000) if kind == "ties" else np.clip(plane, -65000, 65000)
            if kind == "nan":
                plane[random.random(size) < 0.02] = np.nan
            x = mx.array(plane).astype(dtype).reshape(size, 1)
            values, indices = adaptive_max_pool1d(x, count, return_indices=True)
            bounds = reference.adaptive_bounds((size,), (count,))
            rounded = np.array(x.astype(mx.float32)).reshape(size)
            expected, flat = reference.max_pool_bounds(rounded, bounds)
            np.testing.assert_array_equal(np.array(indices).ravel(), flat)
            np.testing.assert_array_equal(np.array(values.astype(mx.float32)).ravel(), expected)


@pytest.mark.parametrize("kernel", [5, 12, 40])
def test_long_random_windows_that_overlap_find_what_stands_in_their_middle(kernel):
    random = np.random.default_rng(kernel)
    plane = random.standard_normal(200).astype(np.float32)
    u = random.random(2, dtype=np.float32)
    values, indices = fractional_max_pool2d(
        mx.array(plane).reshape(1, 1, 200, 1),
        (1, kernel),
        output_size=(1, 100),
        random_samples=mx.array(u).reshape(1, 1, 2),
        return_indices=True,
    )
    bounds = reference.fractional_bounds((200,), (100,), (kernel,), u[1:])
    expected, flat = reference.max_pool_bounds(plane, bounds)
    np.testing.assert_array_equal(np.array(values).ravel(), expected)
    np.testing.assert_array_equal(np.array(indices).ravel(), flat)
