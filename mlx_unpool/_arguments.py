"""Every check of what a caller gave. Each raises an error that names the caller, the argument, what was
given and what is allowed; none looks at a value of an array."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from numbers import Real
from typing import Any

import mlx.core as mx

from ._geometry import Triple, Window, triple

VALUE_DTYPES = (
    mx.float32,
    mx.float16,
    mx.bfloat16,
    mx.int8,
    mx.int16,
    mx.int32,
    mx.int64,
    mx.uint8,
    mx.uint16,
    mx.uint32,
    mx.uint64,
)
INDEX_DTYPES = VALUE_DTYPES[3:]
WINDOW_INDEX_DTYPES = (mx.uint8, mx.uint16)


def window(
    owner: str,
    rank: int,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: Any = False,
) -> Window:
    """The window that these arguments of a pooling over ``rank`` axes describe."""
    kernel = _integers(owner, "kernel_size", kernel_size, rank, least=1)
    strides = kernel if stride is None else _integers(owner, "stride", stride, rank, least=1)
    pads = _integers(owner, "padding", padding, rank, least=0)
    dilations = _integers(owner, "dilation", dilation, rank, least=1)
    if not isinstance(ceil_mode, bool):
        raise TypeError(f"[{owner}] 'ceil_mode' must be True or False but got {ceil_mode!r}.")
    result = Window(
        kernel=triple(kernel),
        stride=triple(strides),
        padding=triple(pads, 0),
        dilation=triple(dilations),
        ceil_mode=ceil_mode,
    )
    if any(2 * p > n for p, n in zip(result.padding, result.span)):
        raise ValueError(
            f"[{owner}] 'padding' must be at most half the window (dilation * (kernel_size - 1) + 1 = "
            f"{result.span[3 - rank :]} places) but got {padding!r}."
        )
    return result


def no_window(owner: str, stride: Any, padding: Any, dilation: Any) -> None:
    """Checks the arguments that go with ``kernel_size=None``: indices of any origin have no window."""
    for name, value, default in (
        ("stride", stride, None),
        ("padding", padding, 0),
        ("dilation", dilation, 1),
    ):
        if type(value) is not type(default) or value != default:
            raise ValueError(
                f"[{owner}] '{name}' must be left at {default} where 'kernel_size' is None but got "
                f"{value!r}."
            )


def countable_cells(owner: str, cells: Triple) -> None:
    """Checks that cells can be numbered in 32 bits, as unpooling without a window does."""
    if prod(cells) >= 2**31:
        raise ValueError(
            f"[{owner}] 'x' must have fewer than 2^31 cells in a plane where 'kernel_size' is None but "
            f"got {prod(cells)}."
        )


def values(owner: str, name: str, x: Any) -> mx.array:
    """Checks an array of values to be pooled or unpooled."""
    if not isinstance(x, mx.array):
        raise TypeError(f"[{owner}] '{name}' must be an mlx array but got {type(x).__name__}.")
    if x.dtype not in VALUE_DTYPES:
        raise TypeError(
            f"[{owner}] '{name}' must have dtype float32, float16, bfloat16 or an integer type but got "
            f"{x.dtype}."
        )
    return x


def indices(owner: str, indices: Any, shape: Sequence[int] | None = None) -> mx.array:
    """Checks an array of indices, of ``shape`` if that is known."""
    if not isinstance(indices, mx.array):
        raise TypeError(
            f"[{owner}] 'indices' must be an mlx array but got {type(indices).__name__}."
        )
    if indices.dtype not in INDEX_DTYPES:
        raise TypeError(
            f"[{owner}] 'indices' must have an integer dtype (uint8 and uint16 are window offsets, the "
            f"others flat indices) but got {indices.dtype}."
        )
    if shape is not None and indices.shape != tuple(shape):
        raise ValueError(
            f"[{owner}] 'indices' must have the shape of the pooled values, {tuple(shape)}, but got "
            f"{indices.shape}."
        )
    return indices


def pooled_size(owner: str, rank: int, window: Window, size: Triple) -> Triple:
    """The pooled size of a plane of ``size``, which must have room for a window."""
    pooled = window.pooled_size(size)
    if min(size) < 1 or min(pooled) < 1:
        raise ValueError(
            f"[{owner}] 'kernel_size' must fit into the padded input: a window covers "
            f"{window.span[3 - rank :]} places and 'padding' is {window.padding[3 - rank :]}, but got an "
            f"input of spatial shape {size[3 - rank :]}."
        )
    return pooled


def adaptive_size(owner: str, rank: int, output_size: Any, size: Triple = (1, 1, 1)) -> Triple:
    """The pooled size that adaptive pooling is asked for, where None keeps an axis of ``size``."""
    given = output_size if isinstance(output_size, (tuple, list)) else [output_size] * rank
    numbers = _all_integers([n for n in given if n is not None])
    if numbers is None or output_size is None:
        raise TypeError(
            f"[{owner}] 'output_size' must be an integer or a tuple of {rank} integers or None but got "
            f"{output_size!r}."
        )
    if len(given) != rank or min(numbers, default=1) < 1:
        raise ValueError(
            f"[{owner}] 'output_size' must be 1 or more, or None, on each of {rank} axes but got "
            f"{output_size!r}."
        )
    wanted = [kept if n is None else operator.index(n) for n, kept in zip(given, size[3 - rank :])]
    return triple(wanted)


def fractional_size(
    owner: str,
    rank: int,
    kernel_size: Any,
    output_size: Any,
    output_ratio: Any,
    size: Triple | None = None,
) -> tuple[Triple, Triple]:
    """Length and number of the windows of fractional pooling on each axis of a plane of ``size``.

    Without ``size`` only the form is checked, and a ratio counts as a size of 1.
    """
    cells: tuple[int, ...]
    kernel = _integers(owner, "kernel_size", kernel_size, rank, least=1)
    if (output_size is None) == (output_ratio is None):
        raise ValueError(
            f"[{owner}] either 'output_size' or 'output_ratio' must be given but got {output_size!r} "
            f"and {output_ratio!r}."
        )
    if output_ratio is None:
        cells = _integers(owner, "output_size", output_size, rank, least=1)
    else:
        lengths = (1,) * rank if size is None else size[3 - rank :]
        ratios = _ratios(owner, output_ratio, rank)
        cells = tuple(int(n * r) for n, r in zip(lengths, ratios))
    if size is not None:
        room = [n - k + 1 for n, k in zip(size[3 - rank :], kernel)]
        if any(not 1 <= n <= most for n, most in zip(cells, room)):
            name = "output_ratio" if output_size is None else "output_size"
            given = output_ratio if output_size is None else output_size
            raise ValueError(
                f"[{owner}] '{name}' must give 1 to input size - kernel_size + 1 = {tuple(room)} windows "
                f"but got {given!r}, {tuple(cells)} windows of {tuple(kernel)}."
            )
    return triple(kernel), triple(cells)


def random_samples(owner: str, samples: Any, key: Any, shape: tuple[int, ...]) -> None:
    """Checks the random numbers that fractional pooling is to use, (N, C, rank), or their key."""
    if samples is not None:
        if key is not None:
            raise ValueError(
                f"[{owner}] 'key' must be None where 'random_samples' are given but got {key!r}."
            )
        if not isinstance(samples, mx.array) or not mx.issubdtype(samples.dtype, mx.floating):
            what = samples.dtype if isinstance(samples, mx.array) else type(samples).__name__
            raise TypeError(
                f"[{owner}] 'random_samples' must be an array of floats but got {what}."
            )
        if samples.shape != shape:
            raise ValueError(
                f"[{owner}] 'random_samples' must have the shape {shape}, a number for each image, channel "
                f"and axis, but got {samples.shape}."
            )
    elif key is not None:
        if not isinstance(key, mx.array):
            raise TypeError(f"[{owner}] 'key' must be an mlx array but got {type(key).__name__}.")
        if key.shape != (2,) or key.dtype != mx.uint32:
            raise ValueError(
                f"[{owner}] 'key' must be a key of mx.random, uint32 of shape (2,), but got {key.dtype} of "
                f"shape {key.shape}."
            )


def output_size(
    owner: str,
    rank: int,
    output_size: Any,
    window: Window | None,
    cells: Triple,
    spatial_of_full_shape: Any,
) -> Triple:
    """The size of the plane to unpool ``cells`` into.

    ``output_size`` is None, the spatial shape or a full shape; ``spatial_of_full_shape(shape)`` gives
    the spatial part of a full shape, or None where batch or channels do not match.
    """
    default = None if window is None else window.unpooled_size(cells)
    if output_size is None:
        if default is None:
            raise ValueError(
                f"[{owner}] 'output_size' must be given where 'kernel_size' is None but got None."
            )
        if min(default) < 1:
            raise ValueError(
                f"[{owner}] 'output_size' must be given here, because the default, "
                f"{default[3 - rank :]}, is empty, but got None."
            )
        return default
    given = shape(owner, output_size)
    spatial = given if len(given) == rank else spatial_of_full_shape(given)
    if spatial is None:
        raise ValueError(
            f"[{owner}] 'output_size' must be a spatial shape of {rank} integers or a full shape whose "
            f"batch and channels are those of the input but got {given}."
        )
    size = triple(spatial)
    if min(spatial) < 1:
        raise ValueError(
            f"[{owner}] 'output_size' must be 1 or more on every axis but got {given}."
        )
    if window is not None and default is not None:
        lowest = [max(1, n - s + 1) for n, s in zip(default, window.stride)]
        highest = [n + s - 1 for n, s in zip(default, window.stride)]
        if any(not lo <= n <= hi for n, lo, hi in zip(size, lowest, highest)):
            ranges = [f"{lo} to {hi}" for lo, hi in zip(lowest, highest)]
            raise ValueError(
                f"[{owner}] 'output_size' must lie within one stride of {default[3 - rank :]}, the "
                f"size that {cells[3 - rank :]} windows span, so ({', '.join(ranges[3 - rank :])}), "
                f"but got {given}."
            )
    return size


def stream(owner: str, value: Any) -> None:
    """Checks where a call is to run."""
    if not isinstance(
        value, (mx.Stream, mx.ThreadLocalStream, mx.Device, mx.DeviceType, type(None))
    ):
        raise TypeError(
            f"[{owner}] 'stream' must be a stream, a device or None but got {type(value).__name__}."
        )


def choice(owner: str, name: str, value: Any, allowed: Sequence[str]) -> None:
    """Checks a named option."""
    if not isinstance(value, str) or value not in allowed:
        options = " or ".join(f"'{option}'" for option in allowed)
        raise ValueError(f"[{owner}] '{name}' must be {options} but got {value!r}.")


def flag(owner: str, name: str, value: Any) -> None:
    """Checks an option that is on or off."""
    if not isinstance(value, bool):
        raise TypeError(f"[{owner}] '{name}' must be True or False but got {value!r}.")


def _integers(owner: str, name: str, value: Any, count: int, least: int) -> tuple[int, ...]:
    """An integer or a sequence as one integer, ``least`` or more, for each of ``count`` axes."""
    allowed = "an integer" if count == 1 else f"an integer or a tuple of {count} integers"
    numbers = _all_integers(value if isinstance(value, (tuple, list)) else [value] * count)
    if numbers is None:
        raise TypeError(f"[{owner}] '{name}' must be {allowed} but got {value!r}.")
    if len(numbers) != count:
        raise ValueError(f"[{owner}] '{name}' must be {allowed} but got {value!r}.")
    if min(numbers) < least:
        raise ValueError(f"[{owner}] '{name}' must be {least} or more but got {value!r}.")
    return numbers


def _ratios(owner: str, value: Any, count: int) -> tuple[float, ...]:
    """A number or a sequence as one number between 0 and 1 for each of ``count`` axes."""
    given = value if isinstance(value, (tuple, list)) else [value] * count
    if any(isinstance(r, bool) or not isinstance(r, Real) for r in given):
        raise TypeError(
            f"[{owner}] 'output_ratio' must be a number or a tuple of {count} numbers but got {value!r}."
        )
    if len(given) != count or not all(0 < r < 1 for r in given):
        raise ValueError(
            f"[{owner}] 'output_ratio' must be between 0 and 1 on each of {count} axes but got {value!r}."
        )
    return tuple(map(float, given))


def shape(owner: str, value: Any) -> tuple[int, ...]:
    """A shape, given as an integer or a sequence."""
    numbers = _all_integers(value if isinstance(value, (tuple, list)) else [value])
    if numbers is None:
        raise TypeError(f"[{owner}] 'output_size' must be a tuple of integers but got {value!r}.")
    return numbers


def _all_integers(numbers: Sequence[Any]) -> tuple[int, ...] | None:
    """``numbers`` as ints, or None if one is something else: a bool, a float, an array."""
    if any(isinstance(number, (bool, mx.array)) for number in numbers):
        return None
    try:
        return tuple(operator.index(number) for number in numbers)
    except TypeError:
        return None
