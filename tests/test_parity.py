"""Values, indices and gradients equal PyTorch's in more than 1,000 generated cases."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import mlx.core as mx
import numpy as np
import pytest
from support import reference
from support.arrays import FLOATS, INTEGERS, Case, Generated, generated_cases, irregular_cases
from support.properties import check_case, cotangent, equal

pytestmark = pytest.mark.external
torch = pytest.importorskip("torch", reason="PyTorch is not installed (dependency group 'torch')")

TORCH_DTYPES = {d: getattr(torch, str(d)[9:]) for d in (*FLOATS, *INTEGERS[:5])}  # up to uint8
BLOCKS = range(12)
BLOCK = 100  # cases


def cases_of(block: int) -> Iterator[Case]:
    """Generated cases that PyTorch accepts.

    Equal padding of at most half the kernel, and no empty window.
    """
    for case in generated_cases(5 * BLOCK, seed=1000 + block, dtypes=tuple(TORCH_DTYPES)):
        fits = all(p == q and 2 * p <= k for (p, q), k in zip(case.pool.sides, case.pool.kernel))
        if fits and min(case.cells) >= 1 and (case.expected()[1] >= 0).all():
            padding = tuple(p for p, _ in case.pool.sides)
            yield replace(case, pool=replace(case.pool, padding=padding), same=False)


def numbers(x) -> np.ndarray:
    """A tensor (1, P, *spatial) as planes."""
    return (x.float() if x.dtype == torch.bfloat16 else x).detach().numpy()[0]


def tensor(planes: np.ndarray, dtype: mx.Dtype):
    """Planes as a tensor that requires gradients, if its dtype supports them."""
    x = torch.from_numpy(planes[None]).to(TORCH_DTYPES[dtype])
    return x.requires_grad_(dtype in FLOATS)


def compare_pool(case: Generated, x, values, flat: np.ndarray) -> None:
    """Compare PyTorch's values, indices and gradient, and the library's, with the reference."""
    expected = case.expected()
    equal(numbers(values), expected[0], case)
    equal(np.signbit(numbers(values)), np.signbit(expected[0]), case)
    equal(flat, expected[1], case)
    if case.dtype in FLOATS:
        weights = cotangent(case.layout, flat.shape[1:])
        equal(gradient(values, x, weights), reference.max_pool_vjp(weights, flat, case.size), case)
    check_case(case)


def gradient(result, x, weights: np.ndarray) -> np.ndarray:
    """PyTorch's gradient of the sum of the results times weights."""
    weights = torch.from_numpy(weights[None]).to(result.dtype)
    return numbers(torch.autograd.grad(result, x, weights)[0])


@pytest.mark.parametrize("block", BLOCKS)
def test_values_indices_and_gradients_are_those_of_pytorch(block):
    cases = list(islice(cases_of(block), BLOCK))
    assert len(cases) > 1000 // len(BLOCKS)
    for case in cases:
        layout, size = case.layout, case.size
        pool, unpool = (
            getattr(torch.nn.functional, f"max_{f}{layout.rank}d") for f in ("pool", "unpool")
        )
        x = tensor(case.planes, case.dtype)
        options = case.pool.dilation, case.pool.ceil_mode
        values, indices = pool(x, *case.parameters, *options, return_indices=True)
        flat = indices[0].numpy()
        compare_pool(case, x, values, flat)
        # PyTorch's unpooling is only defined if no two values have the same index.
        unique = all(len(set(row)) == row.size for row in flat.reshape(layout.planes, -1))
        pytorch_unpools = max(case.pool.dilation) == 1 and not case.pool.ceil_mode
        if case.dtype in FLOATS and unique and pytorch_unpools:
            pooled = torch.nan_to_num(values.detach()).requires_grad_()
            full = unpool(pooled, indices, *case.parameters, output_size=size)
            equal(numbers(full), reference.max_unpool(numbers(pooled), flat, size), case)
            weights = cotangent(layout, size)
            expected = reference.max_unpool_vjp(weights, flat, size)
            equal(gradient(full, pooled, weights), expected, case)


def test_adaptive_and_fractional_pools_are_those_of_pytorch():
    functional, compared = torch.nn.functional, 0
    for case in irregular_cases(400, seed=300, dtypes=(mx.float32,)):
        x, rank = tensor(case.planes, case.dtype), case.layout.rank
        if case.kernel is None:
            pool = getattr(functional, f"adaptive_max_pool{rank}d")
            values, indices = pool(x, case.cells, return_indices=True)
        elif rank == 2 or all(n + k <= m for n, k, m in zip(case.cells, case.kernel, case.size)):
            # PyTorch's 2-D pool expects the samples of the width first, its 3-D pool those
            # of the depth.
            samples = torch.from_numpy(case.samples[None, :, :: -1 if rank == 2 else 1].copy())
            pool = getattr(functional, f"fractional_max_pool{rank}d_with_indices")
            values, indices = pool(x, case.kernel, output_size=case.cells, _random_samples=samples)
        else:
            continue  # PyTorch's 3-D pool rejects the largest size
        compare_pool(case, x, values, indices[0].numpy())
        compared += 1
    assert compared > 250
