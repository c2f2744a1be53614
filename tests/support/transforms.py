"""The table of functions and transforms that are tested.

A row is a public function, a column a transform of MLX. The expected result of a cell comes from an
oracle: the same function written as a product with a matrix of zeros and ones, which MLX can
transform by itself. The matrix comes from the indices of a pool, which test_reference.py compares
with those of NumPy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

import mlx.core as mx
import numpy as np

import mlx_unpool
from support import reference

BATCH, CHANNELS = 2, 3
SIZES = {1: (9,), 2: (5, 7), 3: (3, 5, 3)}
WINDOW = (3, 2, 1)  # kernel_size, stride, padding: the windows overlap


def normal(shape, seed: int) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(seed))


@dataclass
class Case:
    """A function of an array of values and, for unpooling, of an array of indices."""

    call: Callable[..., mx.array]
    inputs: list[mx.array]
    matrix: np.ndarray  # (planes, outputs, inputs): 1 where an output equals an input

    def __post_init__(self) -> None:
        self.output_shape = self.call(*self.inputs).shape

    def oracle(self, x: mx.array, *indices: mx.array) -> mx.array:
        """The function with these indices, as a matrix product."""
        out = mx.array(self.matrix.astype(np.float32)) @ folded(x).reshape(BATCH * CHANNELS, -1, 1)
        return mx.moveaxis(out.reshape(BATCH, CHANNELS, *self.output_shape[1:-1]), 1, -1)


def folded(x: mx.array) -> mx.array:
    """(N, *S, C) as planes (N * C, *S)."""
    return mx.moveaxis(x, -1, 1).reshape(-1, *x.shape[1:-1])


def distinct(rank: int) -> mx.array:
    """Numbers 0.01 apart in random order, so that small steps change no maximum."""
    shape = (BATCH, *SIZES[rank], CHANNELS)
    numbers = np.random.default_rng(rank).permutation(prod(shape))
    return mx.array(numbers.reshape(shape).astype(np.float32) * 0.01)


def cases_of(pool: Callable, x: mx.array, *calls: Callable[..., mx.array]) -> list[Case]:
    """A case for each of ``calls``, which return the values of ``pool(x)``."""
    flat = np.array(folded(pool(x, return_indices=True)[1])).reshape(BATCH * CHANNELS, -1, 1)
    matrix = flat == np.arange(folded(x)[0].size)
    return [Case(call, [x], matrix) for call in calls]


def with_indices(pool: Callable, **given: str) -> Callable[..., mx.array]:
    """The values of a pool that also computes indices."""
    return lambda x, **options: pool(x, return_indices=True, **given, **options)[0]


def max_pool(rank: int) -> list[Case]:
    function = getattr(mlx_unpool, f"max_pool{rank}d")
    pool = lambda x, **options: function(x, *WINDOW, **options)
    in_eval_mode = getattr(mlx_unpool, f"MaxPool{rank}d")(*WINDOW).eval()
    both = with_indices(pool), with_indices(pool, index_format="window")
    return cases_of(pool, distinct(rank), *both, pool, in_eval_mode)


def max_unpool(rank: int) -> list[Case]:
    pool, function = (getattr(mlx_unpool, f"max_{kind}{rank}d") for kind in ("pool", "unpool"))
    cases: list[Case] = []
    for index_format, window, is_given in (
        ("flat", WINDOW, False),
        ("window", WINDOW, False),
        ("flat", (None,), True),
        ("window", WINDOW, True),
    ):
        options = {"return_indices": True, "index_format": index_format}
        values, indices = pool(distinct(rank), *WINDOW, **options)
        given = {}
        if is_given:  # then the dtype may be that of the other format
            given = {"index_format": index_format}
            indices = indices.astype(mx.int32 if index_format == "window" else mx.uint8)
        if not cases:
            flat, positions = np.array(folded(indices)), np.arange(prod(SIZES[rank]))
            won = np.where(reference.winners(flat, SIZES[rank]), flat, -1)  # the last of several
            matrix = won.reshape(len(won), 1, -1) == positions[:, None]

        def call(values, indices, window=window, given=given, **options):
            return function(values, indices, *window, output_size=SIZES[rank], **given, **options)

        cases.append(Case(call, [mx.sin(values), indices], matrix))
    return cases


def adaptive_max_pool(rank: int) -> list[Case]:
    function = getattr(mlx_unpool, f"adaptive_max_pool{rank}d")
    size, x = SIZES[rank], distinct(rank)
    more = partial(function, output_size=size[::-1])
    fewer = partial(function, output_size=tuple((n + 1) // 2 for n in size))
    return cases_of(more, x, more) + cases_of(fewer, x, with_indices(fewer))


def fractional_max_pool(rank: int) -> list[Case]:
    function = getattr(mlx_unpool, f"fractional_max_pool{rank}d")
    cells = tuple(n - 1 for n in SIZES[rank])
    u = mx.random.uniform(shape=(rank,), key=mx.random.key(0))

    def pool(x, stream=None, **options):
        samples = mx.broadcast_to(u, (x.shape[0], x.shape[-1], rank), stream=stream)
        options |= {"output_size": cells, "random_samples": samples, "stream": stream}
        return function(x, 2, **options)

    return cases_of(pool, distinct(rank), pool)


POOLS = {max_pool: 1, max_unpool: 1, adaptive_max_pool: 1, fractional_max_pool: 2}  # the least rank
ROWS: dict[str, list[Case]] = {
    f"{make.__name__}{rank}d": make(rank)
    for make, least in POOLS.items()
    for rank in range(least, 4)
}


# ---- columns: the results of the function or, with ``oracle``, the expected ones


def weighted(case: Case, oracle: bool) -> Callable[..., mx.array]:
    """A sum over the outputs with different weights and nonzero second derivatives."""
    function, weights = case.oracle if oracle else case.call, normal(case.output_shape, 1)
    return lambda *inputs: (weights * mx.sin(function(*inputs))).sum()


def grad_of_grad(case: Case, oracle: bool) -> list[mx.array]:
    first = mx.grad(weighted(case, oracle))
    weights = normal(case.inputs[0].shape, 2)
    return [mx.grad(lambda *inputs: (weights * first(*inputs)).sum())(*case.inputs)]


def vjp(case: Case, oracle: bool) -> list[mx.array]:
    weights = normal(case.output_shape, 3)
    function = case.oracle if oracle else case.call
    outputs, (gradient, *others) = mx.vjp(function, case.inputs, [weights])
    return [*outputs, gradient, *(mx.zeros_like(x) if oracle else x for x in others)]


def jvp(case: Case, oracle: bool) -> list[mx.array]:
    tangents = [normal(x.shape, 4).astype(x.dtype) for x in case.inputs]
    if oracle:
        return [case.oracle(*case.inputs), case.oracle(tangents[0])]
    outputs, pushed = mx.jvp(case.call, case.inputs, tangents)
    return [*outputs, *pushed]


def _vmap(case: Case, oracle: bool, which: tuple[int, ...]) -> list[mx.array]:
    """Map three of the inputs ``which``, along every axis; the oracle is a loop."""
    results = []
    for axis in range(case.inputs[0].ndim + 1):
        # Rolling along the batch keeps values and indices together.
        many = [
            mx.stack([mx.roll(x, n, axis=0) for n in range(3)], axis) if i in which else x
            for i, x in enumerate(case.inputs)
        ]
        axes = tuple(axis if i in which else None for i in range(len(many)))
        if oracle:
            given = lambda n, many=many, axes=axes: [
                x if a is None else mx.take(x, n, a) for x, a in zip(many, axes)
            ]
            results.append(mx.stack([case.call(*given(n)) for n in range(3)], axis))
        else:
            results.append(mx.vmap(case.call, in_axes=axes, out_axes=axis)(*many))
    return results


def vmap_and_derivatives(case: Case, oracle: bool) -> list[mx.array]:
    """The mapped gradient, and the gradient and tangents of a mapped function.

    The oracle is a loop.
    """
    total, (x, *rest) = weighted(case, False), case.inputs
    gradient, many = mx.grad(total), mx.stack([x, x[::-1]])
    if oracle:
        expected = mx.stack([gradient(each, *rest) for each in many])
        return [expected, expected, expected.reshape(2, -1).sum(axis=1) / 100]
    axes = (0, *[None] * len(rest))
    mapped = lambda many: mx.vmap(total, in_axes=axes)(many, *rest)
    _, tangents = mx.jvp(mapped, [many], [mx.full(many.shape, 0.01)])
    of_mapped = mx.grad(lambda many: mapped(many).sum())(many)
    return [mx.vmap(gradient, in_axes=axes)(many, *rest), of_mapped, *tangents]


def compiled(case: Case, oracle: bool, of_gradient: bool = False) -> list[mx.array]:
    """One compiled function for two images, for three and for two again."""
    function = mx.grad(weighted(case, oracle)) if of_gradient else case.call
    function = function if oracle else mx.compile(function)
    three = [mx.concatenate([x, x[:1]]) for x in case.inputs]
    return [
        function(*inputs) for inputs in (case.inputs, *[three, case.inputs] * (not of_gradient))
    ]


def checkpoint(case: Case, oracle: bool) -> list[mx.array]:
    function = weighted(case, oracle)
    return [mx.grad(function if oracle else mx.checkpoint(function))(*case.inputs)]


def non_contiguous(case: Case, oracle: bool) -> list[mx.array]:
    """Arrays that are transposed, strided, reversed or broadcast in memory.

    The oracle copies them.
    """
    ways = [
        lambda x: mx.contiguous(mx.swapaxes(x, 0, -1)).swapaxes(0, -1),
        lambda x: mx.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x[:, ::-1],
        lambda x: mx.broadcast_to(x[:1], x.shape),
    ]
    gradient, results = mx.grad(weighted(case, False)), []
    for way in ways:
        inputs = [mx.contiguous(way(x)) if oracle else way(x) for x in case.inputs]
        results += [case.call(*inputs), gradient(*inputs)]
    return results


COLUMNS: dict[str, Callable[[Case, bool], list[mx.array]]] = {
    "grad of grad": grad_of_grad,
    "vjp": vjp,
    "jvp": jvp,
    "vmap, values": partial(_vmap, which=(0,)),
    "vmap, indices": partial(_vmap, which=(1,)),
    "vmap, both": partial(_vmap, which=(0, 1)),
    "vmap and derivatives": vmap_and_derivatives,
    "compile, sizes": compiled,
    "compile of grad": partial(compiled, of_gradient=True),
    "checkpoint": checkpoint,
    "non-contiguous": non_contiguous,
}
# A compiled function cannot run on the emulated Metal device; its launches are compared instead.
TRACED_ALONE = ("compile, sizes", "compile of grad")


def cells() -> list[tuple[str, str]]:
    """Every row and column that a test runs. Pools have no indices as input."""
    of_indices = ("vmap, indices", "vmap, both")
    return [
        (row, column)
        for row in ROWS
        for column in COLUMNS
        if "unpool" in row or column not in of_indices
    ]


def same(got: list[mx.array], expected: list[mx.array]) -> bool:
    """Whether dtypes and shapes are equal, and numbers up to the order of float32 sums."""
    return len(got) == len(expected) and all(
        (a.dtype, a.shape) == (b.dtype, b.shape)
        and mx.allclose(a.astype(mx.float32), b.astype(mx.float32), rtol=1e-5, atol=1e-5).item()
        for a, b in zip(got, expected)
    )
