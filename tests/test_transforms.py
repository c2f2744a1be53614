"""Every function under every transform: the table of ``transforms.py``, on the CPU."""

import io
import itertools

import mlx.core as mx
import pytest
from support import transforms

import mlx_unpool


@pytest.mark.parametrize(("row", "column"), transforms.cells())
def test_a_cell_of_the_table(row, column):
    for case in transforms.ROWS[row]:
        got = transforms.COLUMNS[column](case, False)
        assert transforms.same(got, transforms.COLUMNS[column](case, True))


def test_every_public_function_has_a_row_or_a_reason():
    others = {"checking", "exporting", "use_backend"}
    others |= {"check_indices", "convert_indices", "replace_max_pools"}
    functions = {name for name in mlx_unpool.__all__ if name[0].islower()}
    assert functions - set(transforms.ROWS) == others


OVERLAPPING = (3, 2, 1)  # kernel_size, stride, padding
SHAPE = (2, 7, 8, 3)


def pool(x, index_format="flat"):
    return mlx_unpool.max_pool2d(x, *OVERLAPPING, return_indices=True, index_format=index_format)


def unpool(values, indices):
    return mlx_unpool.max_unpool2d(values, indices, *OVERLAPPING, output_size=SHAPE[1:3])


def test_a_mapped_pool_gives_the_indices_of_a_loop():
    many = mx.random.normal((4, *SHAPE))
    for index_format, axis in itertools.product(("flat", "window"), range(5)):
        each = [pool(x, index_format) for x in many]
        mapped = mx.vmap(lambda x, f=index_format: pool(x, f), in_axes=axis, out_axes=(axis, axis))
        for got, parts in zip(mapped(mx.moveaxis(many, 0, axis)), zip(*each)):
            assert mx.array_equal(got, mx.stack(parts, axis))


def test_indices_have_zero_derivatives():
    x = mx.random.normal(SHAPE)
    (values, indices), (ones, zeros) = mx.jvp(pool, [x], [mx.ones(SHAPE)])
    assert (ones == 1).all().item()
    _, (tangent,) = mx.jvp(lambda i: unpool(values, i), [indices], [indices])
    assert tangent.dtype == values.dtype
    assert not mx.concatenate([zeros.flatten(), tangent.flatten()]).any().item()


@pytest.mark.parametrize("index_format", ["flat", "window"])
def test_mapped_axes_without_elements(index_format):
    """As with the pools of mlx.nn, results have their shapes and dtypes, and no elements."""

    def there_and_back(x):
        values, indices = pool(x, index_format)
        return unpool(mx.sin(values), indices)

    none = mx.zeros((0, *SHAPE), mx.float16)
    values, indices = mx.vmap(lambda x: pool(x, index_format))(none)
    one = pool(mx.zeros(SHAPE), index_format)[1]
    assert values.shape == indices.shape == (0, *one.shape)
    assert (values.dtype, indices.dtype) == (mx.float16, one.dtype)
    total = lambda x: there_and_back(x).sum()
    gradient = mx.vmap(mx.grad(total))(none)
    mx.export_to_dot(graph := io.StringIO(), gradient)
    assert "Scatter" not in graph.getvalue()  # which would run on placeholder indices
    one_mapped = mx.vmap(lambda v: unpool(v, one))(values)
    of_mapped = mx.grad(lambda x: mx.vmap(there_and_back)(x).sum())(none)
    for result in (mx.vmap(unpool)(values, indices), one_mapped, gradient, of_mapped):
        assert (result.shape, result.dtype, result.tolist()) == (none.shape, mx.float16, [])
    empty = mx.zeros((3, 0, *SHAPE[1:]))
    assert mx.vmap(mx.grad(total))(empty).shape == empty.shape


def random_pool(x, key=None):
    return mlx_unpool.fractional_max_pool2d(x, 2, output_ratio=0.6, key=key)


def test_transforms_of_random_windows_draw_as_the_page_on_guarantees_says():
    x, keys = mx.random.normal((2, 20, 20, 3)), mx.random.split(mx.random.key(3), 4)
    seeded = lambda call, x: (mx.random.seed(1), call(x))[1]
    # checkpoint draws again, unless the key is an argument
    plain, again = (
        mx.grad(lambda x, *key, pool=pool: pool(x, *key).sum())
        for pool in (random_pool, mx.checkpoint(random_pool))
    )
    assert not mx.array_equal(seeded(plain, x), seeded(again, x))
    assert mx.array_equal(plain(x, keys[0]), again(x, keys[0]))
    # vmap draws once, unless each example has its key
    many = mx.broadcast_to(x, (4, *x.shape))
    shared, each = mx.vmap(random_pool)(many), mx.vmap(random_pool)(many, keys)
    assert all(mx.array_equal(one, shared[0]) for one in shared)
    assert all(mx.array_equal(one, random_pool(x, key)) for one, key in zip(each, keys))
    assert not mx.array_equal(each[0], each[1])
    # compile keeps the first draw, unless the state or a key is an input
    frozen, state = mx.compile(random_pool), mx.random.state
    assert mx.array_equal(frozen(x), frozen(x))
    drawn = mx.compile(random_pool, inputs=state, outputs=state)
    first = seeded(drawn, x)
    assert not mx.array_equal(first, drawn(x))
    assert mx.array_equal(first, seeded(random_pool, x))
    assert mx.array_equal(mx.compile(random_pool)(x, keys[0]), random_pool(x, keys[0]))


def test_derivatives_with_respect_to_random_samples_are_zero():
    x, samples = mx.random.normal((2, 9, 8, 3)), mx.random.uniform(shape=(2, 3, 2))
    pool = lambda x, u: mlx_unpool.fractional_max_pool2d(x, 2, output_size=4, random_samples=u)
    _, (tangent,) = mx.jvp(pool, [x, samples], [x, samples])
    assert mx.array_equal(tangent, pool(x, samples))
    assert not mx.jvp(lambda u: pool(x, u), [samples], [samples])[1][0].any().item()
    assert not mx.grad(lambda u: pool(x, u).sum())(samples).any().item()
