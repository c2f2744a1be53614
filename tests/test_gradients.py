"""Derivatives are the exact ones of the functions, through every transform of MLX."""

from __future__ import annotations

import io

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
import reference
from arrays import FLOATS, generated_cases, to_numpy

import mlx_unpool
from mlx_unpool import max_pool2d, max_unpool2d

FORMATS = ("flat", "window")
SHAPE, SIZE = (2, 7, 8, 3), (7, 8)
OVERLAPPING = (3, 2, 1)  # kernel_size, stride, padding


def distinct(shape, seed=0) -> mx.array:
    """Numbers that are at least 1 apart, so that small steps change no maximum."""
    numbers = np.random.default_rng(seed).permutation(int(np.prod(shape)))
    return mx.array(numbers.reshape(shape).astype(np.float32))


def normal(shape, seed=0) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed))


def pool(x, index_format="flat", window=OVERLAPPING):
    return max_pool2d(x, *window, return_indices=True, index_format=index_format)


def unpool(values, indices, window=OVERLAPPING):
    return max_unpool2d(values, indices, *window, output_size=SIZE)


def there_and_back(x, index_format="flat"):
    """What a decoder does with what an encoder gives, as one function."""
    values, indices = pool(x, index_format)
    return unpool(mx.sin(values), indices)


@pytest.mark.parametrize("index_format", FORMATS)
def test_generated_gradients_are_those_of_the_reference(index_format):
    random = np.random.default_rng(0)
    for case in generated_cases(150, seed=7, dtypes=FLOATS):
        _, flat, _ = reference.max_pool(case.planes, case.pool)
        x = case.layout.arrange(case.planes, case.dtype)
        cotangent = random.integers(-3, 4, flat.shape).astype(np.float32)
        _, (got,) = mx.vjp(
            lambda x, case=case: case.max_pool(x, index_format)[0],
            [x],
            [case.layout.arrange(cotangent, case.dtype)],
        )
        expected = reference.max_pool_vjp(cotangent, flat, case.size)
        np.testing.assert_array_equal(case.layout.planes_of(got), expected, err_msg=str(case))

        cotangent = random.integers(-3, 4, case.planes.shape).astype(np.float32)
        values, indices = case.max_pool(x, index_format)
        _, (got,) = mx.vjp(
            lambda v, case=case, indices=indices: case.max_unpool(v, indices),
            [values],
            [case.layout.arrange(cotangent, case.dtype)],
        )
        expected = reference.max_unpool_vjp(cotangent, flat, case.size)
        np.testing.assert_array_equal(case.layout.planes_of(got), expected, err_msg=str(case))


@pytest.mark.parametrize("index_format", FORMATS)
def test_the_pool_adds_up_where_windows_overlap(index_format):
    x = mx.array([0.0, 0, 9, 0, 0]).reshape(1, 1, 5, 1)
    gradient = mx.grad(
        lambda x: max_pool2d(x, (1, 3), 1, return_indices=True, index_format=index_format)[0].sum()
    )(x)
    assert gradient.reshape(-1).tolist() == [0, 0, 3, 0, 0]


def test_losers_and_dropped_indices_get_no_gradient():
    values = mx.array([1.0, 2, 3, 4]).reshape(1, 1, 4, 1)
    indices = mx.array([2, 2, -1, 99]).reshape(1, 1, 4, 1)
    for kernel_size in (2, None):
        gradient = mx.grad(
            lambda v, k=kernel_size: max_unpool2d(v, indices, k, output_size=(2, 8)).sum()
        )(values)
        assert gradient.reshape(-1).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("index_format", FORMATS)
def test_gradients_agree_with_finite_differences(index_format):
    x, weights, direction = distinct(SHAPE), normal(SHAPE, 1), normal(SHAPE, 2)

    def total(x):
        return (weights * there_and_back(0.01 * x, index_format)).sum()

    step = 0.05  # far less than the distance between numbers
    slope = (total(x + step * direction) - total(x - step * direction)) / (2 * step)
    exact = (mx.grad(total)(x) * direction).sum()
    assert abs(slope.item() - exact.item()) < 2e-3 * abs(exact.item()) + 1e-4


@pytest.mark.parametrize("index_format", FORMATS)
def test_jvp_and_vjp_are_transposes_of_each_other(index_format):
    x, tangent = distinct(SHAPE), normal(SHAPE, 1)
    values, indices = pool(x, index_format)
    for function, at in (
        (lambda x: pool(x, index_format)[0], (x, tangent)),
        (lambda v: unpool(v, indices), (values, normal(values.shape, 3))),
        (lambda v: max_unpool2d(v, pool(x)[1], None, output_size=SIZE), (values, values)),
    ):
        point, tangent_ = at
        (out,), (pushed,) = mx.jvp(function, [point], [tangent_])
        cotangent = normal(out.shape, 4)
        _, (pulled,) = mx.vjp(function, [point], [cotangent])
        left, right = (pushed * cotangent).sum().item(), (pulled * tangent_).sum().item()
        assert abs(left - right) < 1e-3 * abs(left) + 1e-4
        assert left != 0


def test_jvp_of_a_pool_gives_zeros_for_its_indices():
    x = distinct(SHAPE)
    _, (values, indices) = mx.jvp(pool, [x], [mx.ones(SHAPE)])
    assert (values == 1).all().item()
    assert (indices == 0).all().item()


@pytest.mark.parametrize("index_format", FORMATS)
def test_second_derivatives(index_format):
    x, weights = distinct(SHAPE) * 0.01, normal(SHAPE, 1)

    def total(x):
        return (weights * there_and_back(x, index_format) ** 2).sum()

    second = mx.grad(lambda x: (mx.grad(total)(x) * weights).sum())(x)
    # sin(v)^2 has the second derivative 2 cos(2v), at the winners; the weights stand at their places.
    places = reference_places(x)
    flat = to_numpy(x).transpose(0, 3, 1, 2).reshape(6, *SIZE)
    weight = to_numpy(weights).transpose(0, 3, 1, 2).reshape(6, *SIZE)
    wins = reference.max_unpool(
        np.ones(places.shape, np.float32),
        np.where(reference.winners(places, SIZE), places, -1),
        SIZE,
    )
    expected = (wins * 2 * np.cos(2 * flat) * weight**2).reshape(2, 3, *SIZE).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(np.array(second), expected, rtol=1e-4, atol=1e-5)


def reference_places(x: mx.array) -> np.ndarray:
    planes = to_numpy(x).transpose(0, 3, 1, 2).reshape(6, *SIZE)
    return reference.max_pool(planes, reference.Pool((3, 3), (2, 2), (1, 1), (1, 1)))[1]


def test_third_derivatives_exist():
    def cubed(v):
        return (max_pool2d(v, 2) ** 3).sum()

    def first(v):
        return mx.grad(cubed)(v).sum()

    def second(v):
        return mx.grad(first)(v).sum()

    x = distinct((1, 2, 2, 1))
    assert mx.grad(second)(x).sum().item() == 6


@pytest.mark.parametrize("axis", range(5))
@pytest.mark.parametrize("index_format", FORMATS)
def test_vmap_over_every_axis_is_a_loop(index_format, axis):
    many = distinct((4, *SHAPE))
    moved = mx.moveaxis(many, 0, axis)
    values, indices = mx.vmap(lambda x: pool(x, index_format), in_axes=axis, out_axes=(axis, axis))(
        moved
    )
    each = [pool(x, index_format) for x in many]
    assert mx.array_equal(values, mx.stack([v for v, _ in each], axis))
    assert mx.array_equal(indices, mx.stack([i for _, i in each], axis))

    both = mx.vmap(unpool, in_axes=(axis, axis), out_axes=axis)(values, indices)
    assert mx.array_equal(both, mx.stack([unpool(v, i) for v, i in each], axis))
    one_index = each[0][1]
    got = mx.vmap(lambda v: unpool(v, one_index), in_axes=axis, out_axes=axis)(values)
    assert mx.array_equal(got, mx.stack([unpool(v, one_index) for v, _ in each], axis))
    one_value = each[0][0]
    got = mx.vmap(lambda i: unpool(one_value, i), in_axes=axis, out_axes=axis)(indices)
    assert mx.array_equal(got, mx.stack([unpool(one_value, i) for _, i in each], axis))


@pytest.mark.parametrize("index_format", FORMATS)
def test_vmap_and_grad_in_either_order(index_format):
    many, weights = distinct((4, *SHAPE)) * 0.01, normal(SHAPE, 1)

    def total(x):
        return (weights * there_and_back(x, index_format) ** 2).sum()

    expected = mx.stack([mx.grad(total)(x) for x in many])
    assert mx.allclose(mx.vmap(mx.grad(total))(many), expected, rtol=1e-5)
    assert mx.allclose(mx.grad(lambda xs: mx.vmap(total)(xs).sum())(many), expected, rtol=1e-5)
    _, (tangent,) = mx.jvp(mx.vmap(total), [many], [mx.ones_like(many)])
    assert mx.allclose(tangent, expected.reshape(4, -1).sum(axis=1), rtol=1e-3)


def test_vmap_without_a_window():
    values, indices = pool(distinct((4, *SHAPE))[0])
    many = mx.stack([indices, indices + 1, indices - 1])
    got = mx.vmap(lambda i: max_unpool2d(values, i, None, output_size=SIZE))(many)
    assert mx.array_equal(
        got, mx.stack([max_unpool2d(values, i, None, output_size=SIZE) for i in many])
    )


@pytest.mark.parametrize("index_format", FORMATS)
def test_compiled_functions_agree(index_format):
    def total(x):
        return (there_and_back(x, index_format) ** 2).sum()

    plain, compiled = mx.value_and_grad(total), mx.compile(mx.value_and_grad(total))
    for batch in (1, 2, 1):  # a change of shape and back
        x = distinct((batch, *SHAPE[1:])) * 0.01
        (value, gradient), (value_, gradient_) = plain(x), compiled(x)
        assert mx.allclose(value, value_, rtol=1e-6)
        assert mx.array_equal(gradient, gradient_)
        assert mx.array_equal(mx.compile(there_and_back)(x), there_and_back(x))


@pytest.mark.parametrize("index_format", FORMATS)
def test_checkpointed_functions_agree(index_format):
    x = distinct(SHAPE) * 0.01

    def total(x):
        return (there_and_back(x, index_format) ** 2).sum()

    checkpointed = mx.checkpoint(lambda x: there_and_back(x, index_format))
    got = mx.grad(lambda x: (checkpointed(x) ** 2).sum())(x)
    assert mx.array_equal(got, mx.grad(total)(x))


def test_asking_for_the_gradient_of_indices_does_not_crash():
    values, indices = pool(distinct(SHAPE))
    _, gradients = mx.vjp(unpool, [values, indices], [mx.ones(SHAPE)])
    assert (gradients[1] == 0).all().item()
    _, (tangent,) = mx.jvp(unpool, [values, indices], [values, indices])
    assert mx.array_equal(tangent, unpool(values, indices))
    _, (tangent,) = mx.jvp(lambda i: unpool(values, i), [indices], [indices])
    assert tangent.dtype == values.dtype
    assert (tangent == 0).all().item()
    as_float = indices.astype(mx.float32)
    gradient = mx.grad(lambda i: unpool(values, i.astype(mx.int32)).sum())(as_float)
    assert (gradient == 0).all().item()


def test_stop_gradient_stops():
    x = distinct(SHAPE)
    gradient = mx.grad(lambda x: mx.stop_gradient(there_and_back(x)).sum())(x)
    assert (gradient == 0).all().item()


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_gradients_of_16_bit_values_add_up_in_32_bits(dtype):
    """1, 2, 3, ... in the type itself would stop at 2,048 (float16) or 256 (bfloat16)."""
    x = mx.zeros((1, 64, 64, 1), dtype)
    x[0, 31, 31, 0] = 1
    for index_format in ("flat", "window"):
        _, (got,) = mx.vjp(
            lambda x, f=index_format: max_pool2d(x, 33, 1, return_indices=True, index_format=f)[0],
            *([x], [mx.full((1, 32, 32, 1), 3, dtype)]),
        )
        assert got[0, 31, 31, 0].item() == 3 * 32 * 32
        assert mx.array_equal(got != 0, x != 0)
    one = mx.zeros((1, 1, 1, 3), dtype)  # every one of 32 x 32 windows is this element
    _, (got,) = mx.vjp(
        lambda x: mlx_unpool.adaptive_max_pool2d(x, 32), [one], [mx.full((1, 32, 32, 3), 3, dtype)]
    )
    assert got.dtype == dtype
    assert got.reshape(-1).tolist() == [3 * 32 * 32] * 3


def test_empty_batches_have_empty_gradients():
    x = mx.zeros((0, *SHAPE[1:]))
    assert mx.grad(lambda x: there_and_back(x).sum())(x).shape == x.shape
    assert mx.vmap(lambda x: pool(x)[0])(mx.zeros((3, 0, 7, 8, 3))).shape == (3, 0, 4, 4, 3)


def test_a_model_learns_through_both_layers():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(1, 4, 3, padding=1)
            self.pool = mlx_unpool.MaxPool2d(2, return_indices=True)
            self.middle = nn.Conv2d(4, 4, 3, padding=1)
            self.unpool = mlx_unpool.MaxUnpool2d.from_pool(self.pool)
            self.last = nn.Conv2d(4, 1, 3, padding=1)

        def __call__(self, x):
            x = self.first(x)
            size = x.shape
            x, indices = self.pool(x)
            return self.last(self.unpool(self.middle(x), indices, output_size=size))

    mx.random.seed(0)
    model, x = Model(), normal((4, 9, 10, 1))
    step = nn.value_and_grad(model, lambda model, x: ((model(x) - x) ** 2).mean())
    losses = []
    for _ in range(30):
        loss, gradients = step(model, x)
        model.update(nn.utils.tree_map(lambda p, g: p - 0.1 * g, model.parameters(), gradients))
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    half = nn.value_and_grad(model, lambda model, x: (model(x) ** 2).mean())
    model.set_dtype(mx.float16)
    loss, gradients = half(model, x.astype(mx.float16))
    assert gradients["first"]["weight"].dtype == mx.float16
    assert np.isfinite(np.array(gradients["first"]["weight"])).all()


@pytest.mark.parametrize("index_format", FORMATS)
def test_vmap_over_an_axis_without_elements(index_format):
    """As mlx.nn's pool: shapes and dtypes of the results, and nothing in them."""
    none = mx.zeros((0, *SHAPE), mx.float16)
    values, indices = mx.vmap(lambda x: pool(x, index_format))(none)
    one_values, one_indices = pool(none.reshape(0, *SHAPE[1:]), index_format)
    assert values.shape == indices.shape == (0, SHAPE[0], *one_values.shape[1:])
    assert (values.dtype, indices.dtype) == (mx.float16, one_indices.dtype)
    assert mx.vmap(unpool)(values, indices).shape == none.shape
    one = pool(distinct(SHAPE), index_format)[1]
    assert mx.vmap(lambda v: unpool(v, one))(values).shape == none.shape
    gradient = mx.vmap(mx.grad(lambda x: there_and_back(x, index_format).sum()))(none)
    assert (gradient.shape, gradient.dtype) == (none.shape, mx.float16)
    adaptive = mx.vmap(lambda x: mlx_unpool.adaptive_max_pool2d(x, 5))(none)
    assert adaptive.shape == (0, SHAPE[0], 5, 5, SHAPE[3])
    of_mapped = mx.grad(lambda x: mx.vmap(pool)(x)[0].sum())(none)
    assert (of_mapped.shape, of_mapped.dtype) == (none.shape, mx.float16)
    # Nothing is left to run: what stands in for an example has indices that no pool would give.
    graph = io.StringIO()
    mx.export_to_dot(graph, gradient)
    assert "Scatter" not in graph.getvalue()
    mx.eval(values, indices, gradient, adaptive, of_mapped)
