"""Metal kernels give what the reference and the plain-ops backend give, bit for bit, in any order of threads.

Every launch is watched as it runs: see ``emulator``. All of it runs a second time on a device that takes
32-bit subnormal numbers for zero, as Apple's GPUs do, and on a real Metal device where there is one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import emulator
import metal_host
import mlx.core as mx
import numpy as np
import pytest
import reference
from emulator import FLUSHING, device
from kernel_cases import (
    ALL,
    CHOSEN,
    IRREGULAR,
    SegNet,
    irregular_results,
    pool_of_dtypes,
    results,
    same_bits,
    segnet_step,
)
from metal_host import Launch
from mlx.utils import tree_flatten

import mlx_unpool
from mlx_unpool._backends import gpu

DEVICES = [*emulator.DEVICES, *FLUSHING]


@pytest.fixture(scope="module")
def compiled() -> list[Launch]:
    """Every launch of this module, with its kernel compiled: together they take a fraction of the time."""
    if "emulated" not in DEVICES or metal_host.compiler_missing():
        return []
    calls = [results(case, seed) for seed, case in enumerate(ALL)]
    calls += [irregular_results(case, seed) for seed, case in enumerate(IRREGULAR)]
    return emulator.compile_all([*calls, pool_of_dtypes, lambda: segnet_step(SegNet(), 0)])


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("number", range(len(IRREGULAR)))
def test_adaptive_and_fractional_pooling_agree_with_plain_ops(number, name, compiled):
    agrees_with_plain_ops(irregular_results(IRREGULAR[number], number), name, number)


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("number", range(len(ALL)))
def test_every_function_and_derivative_agrees_with_plain_ops(number, name, compiled):
    agrees_with_plain_ops(results(ALL[number], number), name, number)


def agrees_with_plain_ops(call: Callable[[], list[mx.array]], name: str, number: int) -> None:
    with device("cpu"):  # test_reference.py holds it against the reference
        expected = call()
        mx.eval(expected)
    orders = [(None, None)]
    if name == "emulated":  # shuffled, and with inputs that begin anywhere
        orders.append((number, 1 + number % 7))
    for shuffle, shift in orders:
        with device(name, shuffle, shift):
            got = call()
            mx.eval(got)
        for place, (a, b) in enumerate(zip(got, expected, strict=True)):
            assert same_bits(a, b), f"result {place}"


@pytest.mark.parametrize("name", DEVICES)
def test_chosen_pools_agree_with_the_reference(name, compiled):
    for case in CHOSEN:
        values, flat, _ = reference.max_pool(case.planes, case.pool)
        with device(name):
            got, indices = case.max_pool(case.layout.arrange(case.planes, case.dtype))
            full = case.max_unpool(got, indices)
        np.testing.assert_array_equal(case.layout.planes_of(got), values)
        np.testing.assert_array_equal(case.layout.planes_of(indices), flat)
        np.testing.assert_array_equal(
            case.layout.planes_of(full), reference.max_unpool(values, flat, case.size)
        )


@pytest.mark.parametrize("name", DEVICES)
def test_special_numbers_of_every_type(name, compiled):
    with device("cpu"):
        expected = pool_of_dtypes()
        mx.eval(expected)
    with device(name):
        got = pool_of_dtypes()
        mx.eval(got)
    for a, b in zip(got, expected, strict=True):
        assert same_bits(a, b)


# Cotangents of the windows that share a position, their sum in the type itself, and the right one.
SUMS = {mx.bfloat16: ([256, 1, 1, 1], 256, 260), mx.float16: ([2048, 1, 1, 1], 2048, 2052)}


@pytest.mark.parametrize("name", ["cpu", *DEVICES])
@pytest.mark.parametrize("windows", ["alike", "adaptive"])
@pytest.mark.parametrize("dtype", SUMS, ids=str)
def test_sums_of_16_bit_floats_are_widened(dtype, windows, name, compiled):
    cotangents, narrow, right = SUMS[dtype]
    sum_of = mx.zeros((), dtype)
    for number in cotangents:
        sum_of = sum_of + mx.array(number, dtype)
    assert sum_of.item() == narrow
    x = mx.zeros((1, 3, 3, 1), dtype)
    x[:, 1, 1] = 1  # which all four windows cover

    def pool(x):
        if windows == "alike":
            return mlx_unpool.max_pool2d(x, 2, 1)
        return mlx_unpool.adaptive_max_pool2d(x, 2)

    with device(name):
        (gradient,) = mx.vjp(pool, [x], [mx.array(cotangents, dtype).reshape(1, 2, 2, 1)])[1]
        mx.eval(gradient)
    assert gradient.reshape(-1).tolist() == [0, 0, 0, 0, right, 0, 0, 0, 0]


@pytest.mark.parametrize("name", ["cpu", *DEVICES])
def test_a_thousand_ones_in_bfloat16_are_a_thousand(name, compiled):
    x = mx.zeros((1, 63, 63, 1), mx.bfloat16)
    x[:, 31, 31] = 1
    with device(name):
        (gradient,) = mx.vjp(
            lambda x: mlx_unpool.max_pool2d(x, 32, 1), [x], [mx.ones((1, 32, 32, 1), mx.bfloat16)]
        )[1]
        mx.eval(gradient)
    assert gradient[0, 31, 31, 0].item() == 1024  # in bfloat16 itself, 256 + 1 is 256


@pytest.mark.parametrize("name", DEVICES)
def test_a_training_step_of_a_segnet_agrees(name, compiled):
    mx.random.seed(3)
    model = SegNet()
    with device("cpu"):
        loss, gradients = segnet_step(model, 1)
        mx.eval(loss, gradients)
    with device(name):
        loss_, gradients_ = segnet_step(model, 1)
        mx.eval(loss_, gradients_)
    assert abs(loss.item() - loss_.item()) < 1e-5
    for (key, a), (_, b) in zip(tree_flatten(gradients), tree_flatten(gradients_), strict=True):
        assert mx.allclose(a, b, rtol=1e-4, atol=1e-6), key


def test_the_cases_reach_every_kernel_and_every_way_to_pass_an_array(compiled):
    # The longest name first: "pool" begins others.
    known = sorted((kernel.name for kernel in gpu.KERNELS), key=len, reverse=True)
    kernels = {
        next(name for name in known if launch.name.startswith(f"custom_kernel_unpool_{name}"))
        for launch in compiled
    }
    assert kernels == set(known)
    for name in ("x", "indices", "values", "full", "outside_window", "bounds", "covering"):
        parameters = [p for launch in compiled for p in launch.parameters if p["name"] == name]
        spaces = {
            space
            for p in parameters
            for space in ("constant", "device")
            if space in p["type"].split()
        }
        assert spaces == {"constant", "device"}, name
    assert len({launch.text for launch in compiled}) > 500


@pytest.mark.parametrize("name", DEVICES)
def test_one_device_unpools_what_another_pools(name, compiled):
    for number in (3, 13, 20):
        case = CHOSEN[number]
        x = case.layout.arrange(case.planes, case.dtype)
        for index_format in ("flat", "window"):
            results = []
            for first, second in itertools.product(("cpu", name), ("cpu", name)):
                with device(first):
                    values, indices = case.max_pool(x, index_format)
                with device(second):
                    results.append(case.max_unpool(values, indices))
                    mx.eval(results[-1])
            assert all(same_bits(result, results[0]) for result in results[1:])
