"""Every function under every transform: the table of ``transforms.py``, on the CPU."""

from __future__ import annotations

import io

import mlx.core as mx
import pytest
import transforms

import mlx_unpool


@pytest.mark.parametrize(("row", "column"), transforms.cells())
def test_a_cell_of_the_table(row, column):
    for case in transforms.ROWS[row]:
        got = transforms.COLUMNS[column](case, False)
        assert transforms.same(got, transforms.COLUMNS[column](case, True))


def test_every_public_function_has_a_row_or_a_reason():
    functions = {name for name in mlx_unpool.__all__ if name[0].islower()}
    contexts = {"checking", "exporting", "use_backend"}
    others = {"check_indices", "convert_indices", "replace_max_pools"}
    assert functions - set(transforms.ROWS) == others | contexts


def test_the_table_detects_a_wrong_derivative():
    """A function with another derivative fails every column that differentiates."""
    case = transforms.ROWS["max_pool2d"][0]
    wrong = transforms.Case(lambda x: case.call(x) * 1.001, case.inputs, case.matrix)
    for column in ("grad", "grad of grad", "vjp", "jvp", "checkpoint", "value_and_grad"):
        compute = transforms.COLUMNS[column]
        assert not transforms.same(compute(wrong, False), compute(wrong, True)), column


# Not in the table


@pytest.mark.parametrize("row", transforms.ROWS)
def test_the_gradient_of_a_mapped_function_is_that_of_a_loop(row):
    for case in transforms.ROWS[row]:
        x, *rest = case.inputs
        total = lambda x, case=case, rest=rest: (mx.sin(case.call(x, *rest)) ** 2).sum()  # noqa: E731
        many = mx.stack([x, x[::-1], 2 * x])
        expected = mx.stack([mx.grad(total)(each) for each in many])
        got = mx.grad(lambda many, total=total: mx.vmap(total)(many).sum())(many)
        assert mx.allclose(got, expected, rtol=1e-5)
        _, (tangent,) = mx.jvp(mx.vmap(total), [many], [mx.ones_like(many)])
        sums = expected.reshape(3, -1).sum(axis=1)
        assert mx.allclose(tangent, sums, rtol=1e-3, atol=1e-3 * mx.abs(expected).sum().item() / 9)


OVERLAPPING = (3, 2, 1)  # kernel_size, stride, padding
SHAPE = (2, 7, 8, 3)


def pool(x, index_format="flat"):
    return mlx_unpool.max_pool2d(x, *OVERLAPPING, return_indices=True, index_format=index_format)


def unpool(values, indices):
    return mlx_unpool.max_unpool2d(values, indices, *OVERLAPPING, output_size=SHAPE[1:3])


@pytest.mark.parametrize("index_format", ["flat", "window"])
def test_a_mapped_pool_gives_the_indices_of_a_loop(index_format):
    many = mx.random.normal((4, *SHAPE))
    each = [pool(x, index_format) for x in many]
    for axis in range(5):
        mapped = mx.vmap(lambda x: pool(x, index_format), in_axes=axis, out_axes=(axis, axis))
        values, indices = mapped(mx.moveaxis(many, 0, axis))
        assert mx.array_equal(values, mx.stack([v for v, _ in each], axis))
        assert mx.array_equal(indices, mx.stack([i for _, i in each], axis))


def test_indices_have_zero_derivatives():
    """Of a pool, and of unpooling as a function of its indices alone."""
    x = mx.random.normal(SHAPE)
    _, (values, indices) = mx.jvp(pool, [x], [mx.ones(SHAPE)])
    assert (values == 1).all().item()
    assert (indices == 0).all().item()
    values, indices = pool(x)
    _, (tangent,) = mx.jvp(lambda i: unpool(values, i), [indices], [indices])
    assert tangent.dtype == values.dtype
    as_float = indices.astype(mx.float32)
    gradient = mx.grad(lambda i: unpool(values, i.astype(mx.int32)).sum())(as_float)
    assert not tangent.any().item()
    assert not gradient.any().item()


@pytest.mark.parametrize("index_format", ["flat", "window"])
def test_empty_batches_and_mapped_axes_without_elements(index_format):
    """As with the pools of mlx.nn, results have their shapes and dtypes, and no elements."""

    def there_and_back(x):
        values, indices = pool(x, index_format)
        return unpool(mx.sin(values), indices)

    total = lambda x: there_and_back(x).sum()  # noqa: E731
    assert mx.grad(total)(mx.zeros((0, *SHAPE[1:]))).shape == (0, *SHAPE[1:])
    assert mx.vmap(lambda x: pool(x)[0])(mx.zeros((3, 0, 7, 8, 3))).shape == (3, 0, 4, 4, 3)
    none = mx.zeros((0, *SHAPE), mx.float16)
    values, indices = mx.vmap(lambda x: pool(x, index_format))(none)
    one_values, one_indices = pool(none.reshape(0, *SHAPE[1:]), index_format)
    assert values.shape == indices.shape == (0, SHAPE[0], *one_values.shape[1:])
    assert (values.dtype, indices.dtype) == (mx.float16, one_indices.dtype)
    assert mx.vmap(unpool)(values, indices).shape == none.shape
    one = pool(mx.random.normal(SHAPE), index_format)[1]
    assert mx.vmap(lambda v: unpool(v, one))(values).shape == none.shape
    gradient = mx.vmap(mx.grad(total))(none)
    of_mapped = mx.grad(lambda x: mx.vmap(pool)(x)[0].sum())(none)
    for result in (gradient, of_mapped):
        assert (result.shape, result.dtype) == (none.shape, mx.float16)
    adaptive = mx.vmap(lambda x: mlx_unpool.adaptive_max_pool2d(x, 5))(none)
    assert adaptive.shape == (0, SHAPE[0], 5, 5, SHAPE[3])
    # The graph contains no scatter, which would run on placeholder indices.
    graph = io.StringIO()
    mx.export_to_dot(graph, gradient)
    assert "Scatter" not in graph.getvalue()
    mx.eval(values, indices, gradient, adaptive, of_mapped)


# Random windows


def random_pool(x, key=None):
    return mlx_unpool.fractional_max_pool2d(x, 2, output_ratio=0.6, key=key)


def seeded(call):
    mx.random.seed(1)
    return call()


def test_transforms_of_random_windows_draw_as_the_page_on_guarantees_says():
    x, keys = mx.random.normal((2, 20, 20, 3)), mx.random.split(mx.random.key(3), 4)
    # checkpoint draws again, unless the key is an argument
    gradient = lambda pool, *key: mx.grad(lambda x: pool(x, *key).sum())(x)  # noqa: E731
    again = mx.checkpoint(random_pool)
    plain, other = (seeded(lambda pool=pool: gradient(pool)) for pool in (random_pool, again))
    assert not mx.array_equal(plain, other)
    assert mx.array_equal(gradient(again, keys[0]), gradient(random_pool, keys[0]))
    # vmap draws once, unless each example has its key
    many = mx.broadcast_to(x, (4, *x.shape))
    shared, each = mx.vmap(random_pool)(many), mx.vmap(random_pool)(many, keys)
    assert all(mx.array_equal(one, shared[0]) for one in shared)
    assert all(mx.array_equal(one, random_pool(x, key)) for one, key in zip(each, keys))
    assert not mx.array_equal(each[0], each[1])


def test_compile_keeps_the_first_draw_unless_the_state_or_a_key_is_an_input():
    x, key = mx.random.normal((2, 20, 20, 3)), mx.random.key(3)
    frozen = mx.compile(random_pool)
    assert mx.array_equal(frozen(x), frozen(x))
    state = mx.random.state
    drawn = mx.compile(random_pool, inputs=state, outputs=state)
    first, second = seeded(lambda: (drawn(x), drawn(x)))
    assert not mx.array_equal(first, second)
    assert mx.array_equal(seeded(lambda: random_pool(x)), first)
    assert mx.array_equal(mx.compile(random_pool)(x, key), random_pool(x, key))


def test_derivatives_with_respect_to_random_samples_are_zero():
    x, samples = mx.random.normal((2, 9, 8, 3)), mx.random.uniform(shape=(2, 3, 2))

    def pool(x, samples):
        return mlx_unpool.fractional_max_pool2d(x, 2, output_size=4, random_samples=samples)

    _, (tangent,) = mx.jvp(pool, [x, samples], [x, samples])
    assert mx.array_equal(tangent, pool(x, samples))
    _, (tangent,) = mx.jvp(lambda u: pool(x, u), [samples], [samples])
    assert not tangent.any().item()
    assert not mx.grad(lambda u: pool(x, u).sum())(samples).any().item()


WIDE = {
    **{f"max pool of {k}": mlx_unpool.MaxPool1d(k, s) for k, s in ((33, 33), (64, 7), (100, 100))},
    "dilated": mlx_unpool.MaxPool1d(40, 3, 5, dilation=2),
    "adaptive to 1": mlx_unpool.AdaptiveMaxPool1d(1),
    "adaptive to 3": mlx_unpool.AdaptiveMaxPool1d(3),
    "fractional": lambda x: mlx_unpool.fractional_max_pool2d(
        x[:, None],
        (1, 50),
        output_size=(1, 4),
        random_samples=mx.full((len(x), x.shape[2], 2), 0.5),
    ),
}


@pytest.mark.parametrize("name", WIDE)
def test_wide_windows_are_mapped(name):
    pool = WIDE[name]
    x = mx.random.permutation(2 * 3 * 2 * 211 * 2).reshape(2, 3, 2, 211, 2).astype(mx.float32)
    total = lambda x: (pool(x) ** 2).sum()  # noqa: E731
    each = lambda f, x: mx.stack([mx.stack([f(y) for y in row]) for row in x])  # noqa: E731
    for function in (pool, mx.grad(total)):
        assert mx.array_equal(mx.vmap(mx.vmap(function))(x), each(function, x))
        assert mx.array_equal(
            mx.vmap(function, in_axes=1)(x[0].swapaxes(0, 1)), each(function, x)[0]
        )
    mapped = mx.grad(lambda x: mx.vmap(total)(x).sum())(x[0])
    assert mx.array_equal(mapped, each(mx.grad(total), x)[0])
