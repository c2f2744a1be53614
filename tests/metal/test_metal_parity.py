"""Metal kernels give the same bits as the CPU backend, in any order of threads.

Every memory access of every launch is checked. All tests also run on an emulated device that
flushes 32-bit subnormal numbers, as Apple's GPUs do, and on a real Metal device if there is one.
"""

import emulator
import mlx.core as mx
import pytest
from emulator import DEVICES, evaluated
from metal_host import Launch
from support.kernel_cases import CHOSEN_CALLS, GENERATED_CALLS, assert_same_bits

import mlx_unpool

CALLS = CHOSEN_CALLS | GENERATED_CALLS


@pytest.fixture(scope="module", autouse=True)
def compiled() -> list[Launch]:
    """The launches of this module, whose kernels are compiled together."""
    return emulator.compile_all(CALLS.values())


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize(("number", "name_of_call"), list(enumerate(CALLS)))
def test_every_function_and_derivative_agrees_with_the_cpu(number, name_of_call, name):
    call = CALLS[name_of_call]
    expected = evaluated(call, "cpu")  # which test_ops.py and test_reference.py check
    assert_same_bits(evaluated(call, name), expected)
    if name == "emulated":
        assert_same_bits(evaluated(call, name, shuffle=number, shift=1 + number % 7), expected)


# dtype, pool, cotangents of windows that share a position, and their sum, which the
# dtype itself rounds.
POOLS = {
    "max_pool2d": lambda x: mlx_unpool.max_pool2d(x, 2, 1),
    "adaptive_max_pool2d": lambda x: mlx_unpool.adaptive_max_pool2d(x, 2),
    "large windows": lambda x: mlx_unpool.max_pool2d(x, 32, 1),
}
SUMS = [
    *((mx.bfloat16, pool, [256, 1, 1, 1], 260) for pool in ("max_pool2d", "adaptive_max_pool2d")),
    *((mx.float16, pool, [2048, 1, 1, 1], 2052) for pool in ("max_pool2d", "adaptive_max_pool2d")),
    (mx.bfloat16, "large windows", [1] * 1024, 1024),
    (mx.float16, "large windows", [2048, *[1] * 1022, 0], 3070),
]


@pytest.mark.parametrize("name", ["cpu", *DEVICES])
@pytest.mark.parametrize(("dtype", "pool", "cotangents", "expected"), SUMS)
def test_sums_of_16_bit_floats_are_computed_in_float32(dtype, pool, cotangents, expected, name):
    narrow = mx.zeros((), dtype)
    for number in cotangents:
        narrow = narrow + mx.array(number, dtype)
    assert narrow.item() < expected
    side = round(len(cotangents) ** 0.5)
    x = mx.zeros((1, 2 * side - 1, 2 * side - 1, 1), dtype)
    x[:, side - 1, side - 1] = 1  # in every window
    given = mx.array(cotangents, dtype).reshape(1, side, side, 1)
    (gradient,) = evaluated(lambda: mx.vjp(POOLS[pool], [x], [given])[1], name)
    assert mx.array_equal(gradient, x * expected)


LAYERS = {
    "equal windows": mlx_unpool.MaxPool2d(3, 2, 1),
    "many rows": mlx_unpool.MaxPool2d(5, 1, 2),
    "windows without an element": mlx_unpool.MaxPool2d(2, 9, 15, dilation=30),
    "large windows": mlx_unpool.MaxPool2d(9, 4),
    "adaptive, unequal": mlx_unpool.AdaptiveMaxPool2d(7),
    "adaptive, large": mlx_unpool.AdaptiveMaxPool2d(2),
}


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16], ids=str)
def test_layers_in_eval_mode_agree_with_layers_in_training(dtype, layer, name):
    numbers = mx.array([mx.nan, mx.inf, -mx.inf, 0.0, -0.0, 1e-40, 1e-7, *range(-9, 9)], dtype)
    x = numbers[mx.random.randint(0, numbers.size, (2, 23, 18, 3))]
    pool = LAYERS[layer]

    def step(training: bool) -> list[mx.array]:
        weights = mx.random.randint(-9, 9, pool(x).shape, key=mx.random.key(1)).astype(dtype)
        pool.train(training)
        (values,), gradients = mx.vjp(pool, [x], [weights])
        return [values, *gradients, *mx.jvp(pool, [x], [mx.abs(x)])[1]]

    assert_same_bits(evaluated(lambda: step(False), name), evaluated(lambda: step(True), "cpu"))


def test_the_calls_reach_both_address_spaces(compiled):
    spaces: dict[str, set[str]] = {}
    for launch in compiled:
        for number, (shape, _) in zip(launch.array_numbers, launch.inputs):
            name = launch.buffers[number]
            if len(shape) > 1:  # not the integers
                spaces.setdefault(name, set()).add(name in launch.constants)
    assert sum(len(found) == 2 for found in spaces.values()) >= 7  # others are large in every call
    assert len({launch.text for launch in compiled}) > 300
