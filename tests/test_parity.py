"""PyTorch gives the same values, indices and gradients, in more than 1,000 generated cases."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
import reference
from arrays import FLOATS, Case, generated_cases, to_numpy

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra 'parity')")

TORCH_DTYPES = {
    mx.float32: torch.float32,
    mx.float16: torch.float16,
    mx.bfloat16: torch.bfloat16,
    mx.int8: torch.int8,
    mx.int16: torch.int16,
    mx.int32: torch.int32,
    mx.int64: torch.int64,
    mx.uint8: torch.uint8,
}
BLOCKS = range(12)
BLOCK = 100  # cases


def pytorch_takes(case: Case) -> bool:
    """PyTorch wants padding of at most half the kernel, dilation aside, and a place in every window."""
    if any(2 * p > k for p, k in zip(case.pool.padding, case.pool.kernel)):
        return False
    cells = case.cells
    ones = np.zeros((1, *case.size), np.float32)
    return bool((reference.max_pool(ones, case.pool)[1] >= 0).all()) and min(cells) > 0


def cases_of(block: int) -> list[Case]:
    cases = generated_cases(3 * BLOCK, seed=1000 + block, dtypes=tuple(TORCH_DTYPES))
    return [case for case in cases if pytorch_takes(case)][:BLOCK]


def test_there_are_more_than_a_thousand_cases():
    assert sum(len(cases_of(block)) for block in BLOCKS) > 1000


def numbers(x) -> np.ndarray:
    return (x.float() if x.dtype == torch.bfloat16 else x).detach().numpy()


@pytest.mark.parametrize("block", BLOCKS)
def test_values_indices_and_gradients_are_those_of_pytorch(block):
    random = np.random.default_rng(block)
    for case in cases_of(block):
        functional = torch.nn.functional
        rank = case.layout.rank
        pool = getattr(functional, f"max_pool{rank}d")
        unpool = getattr(functional, f"max_unpool{rank}d")

        planes = torch.from_numpy(case.planes[None]).to(TORCH_DTYPES[case.dtype])
        is_float = case.dtype in FLOATS
        planes.requires_grad_(is_float)
        parameters = (*case.parameters, case.pool.dilation, case.pool.ceil_mode)
        torch_values, torch_indices = pool(planes, *parameters, return_indices=True)

        x = case.layout.arrange(case.planes, case.dtype)
        values, indices = case.max_pool(x)
        got = case.layout.planes_of(values)
        np.testing.assert_array_equal(got, numbers(torch_values)[0], err_msg=str(case))
        got = case.layout.planes_of(indices)
        np.testing.assert_array_equal(got, torch_indices[0].numpy(), err_msg=str(case))
        if not is_float:
            continue

        # Gradients, of small integers so that sums are exact in every type.
        cotangent = random.integers(-3, 4, torch_values.shape[1:]).astype(np.float32)
        torch_values.backward(torch.from_numpy(cotangent[None]).to(torch_values.dtype))
        for index_format in ("flat", "window"):
            _, (gradient,) = mx.vjp(
                lambda x, case=case, index_format=index_format: case.max_pool(x, index_format)[0],
                [x],
                [case.layout.arrange(cotangent, case.dtype)],
            )
            np.testing.assert_array_equal(
                case.layout.planes_of(gradient), numbers(planes.grad)[0], err_msg=str(case)
            )

        # Unpooling: PyTorch's result is defined where no two cells name one place.
        flat = torch_indices.reshape(case.layout.planes, -1).numpy()
        unique = all(len(set(row)) == len(row) for row in flat.tolist())
        if not unique or any(d > 1 for d in case.pool.dilation) or case.pool.ceil_mode:
            continue
        pooled = torch.nan_to_num(torch_values.detach()).requires_grad_()
        torch_full = unpool(pooled, torch_indices, *case.parameters, output_size=case.size)
        cotangent = random.integers(-3, 4, torch_full.shape[1:]).astype(np.float32)
        torch_full.backward(torch.from_numpy(cotangent[None]).to(torch_full.dtype))
        for index_format in ("flat", "window"):
            _, indices = case.max_pool(x, index_format)
            (full,), (gradient,) = mx.vjp(
                lambda v, case=case, indices=indices: case.max_unpool(v, indices),
                [case.layout.arrange(numbers(pooled)[0], case.dtype)],
                [case.layout.arrange(cotangent, case.dtype)],
            )
            np.testing.assert_array_equal(
                case.layout.planes_of(full), numbers(torch_full)[0], err_msg=str(case)
            )
            np.testing.assert_array_equal(
                case.layout.planes_of(gradient), numbers(pooled.grad)[0], err_msg=str(case)
            )


def test_indices_of_pytorch_are_taken_as_they_are():
    x = torch.randn(2, 3, 9, 8)
    values, indices = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    import mlx_unpool

    got = mlx_unpool.max_unpool2d(
        mx.array(values.numpy()),
        mx.array(indices.numpy()),  # int64
        2,
        output_size=(9, 8),
        data_format="channels_first",
    )
    expected = torch.nn.functional.max_unpool2d(values, indices, 2, output_size=(9, 8))
    np.testing.assert_array_equal(to_numpy(got), expected.numpy())
