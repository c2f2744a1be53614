"""Checks of arguments. Each raises an error that names the caller, the argument, the value given
and what is allowed. Functions whose name begins with ``check`` return nothing, the others the
checked argument.

No check evaluates an array, but a message that prints a tuple with an array does.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import mlx.core as mx

from ._geometry import Window, triple, untriple
from ._types import (
    DATA_FORMATS,
    INDEX_FORMATS,
    LARGEST_AXIS,
    MAX_WINDOW_INDICES,
    TRAITS,
    IndexFormat,
    is_float,
)

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=str)
LAYOUTS = dict.fromkeys(("NCL", "NCW", "NCHW", "NCDHW"), "channels_first")
LAYOUTS |= dict.fromkeys(("NLC", "NWC", "NHWC", "NDHWC"), "channels_last")


def short_repr(value: Any) -> str:
    """The repr of an argument for a message; arrays and very long values are only described."""
    if isinstance(value, mx.array):
        return f"an array of shape {value.shape}"
    try:
        text = repr(value)
    # An integer of thousands of digits, a traced array, a __repr__ with a mistake.
    except Exception:
        return f"an unprintable {type(value).__name__}"
    return text if len(text) <= 200 else f"a very long {type(value).__name__}"


def message(caller: str, name: str, needed: str, got: Any) -> str:
    """An error message: what the argument ``name`` must be, have or do, and what was passed."""
    return f"[{caller}] '{name}' must {needed} but got {short_repr(got)}."


def wrong_type(caller: str, name: str, needed: str, got: Any) -> TypeError:
    """The error for a size of a wrong type: arrays of sizes, of MLX or NumPy, are not evaluated."""
    hint = ""
    if getattr(got, "ndim", 0) == 1 and "int" in str(getattr(got, "dtype", "")):
        hint = f" If these are the sizes, pass {name}=tuple({name}.tolist())."
    elif isinstance(got, mx.array) and got.ndim > 1 and name == "output_size":
        hint = f" Pass its shape: {name}={got.shape}."
    return TypeError(message(caller, name, needed, got) + hint)


def checked_call(function: F) -> F:
    """``function``, with errors like those of this module for calls that do not fit its signature.

    Python's own error would name the private base class of a layer. ``inspect``, ``help`` and type
    checkers see the signature of ``function``.
    """

    @functools.wraps(function)
    def call(*given: Any, **options: Any) -> Any:
        try:
            return function(*given, **options)
        except TypeError as error:
            trace = error.__traceback__
            if trace is None or trace.tb_next is not None:  # raised inside ``function``
                raise
        raise TypeError(_misfit(function, given, options))

    return cast("F", call)


def _misfit(function: Callable[..., Any], given: tuple[Any, ...], options: dict[str, Any]) -> str:
    """The message of the error for arguments that do not fit the signature of ``function``."""
    caller, example = function.__name__, f"{function.__name__}(*pool(x), ..., output_size=x.shape)"
    if given and caller.startswith("__"):  # a method of a layer
        caller, example = type(given[0]).__name__, "unpool(*pool(x), output_size=x.shape)"
    signature = inspect.signature(function)
    hint = _positional_hint(signature, len(given))
    if any(map(_is_pair, given)):
        hint = f" {_PAIR}: {example}."
    unknown = [name for name in options if name not in signature.parameters]
    if unknown:
        return f"[{caller}] got an unexpected keyword argument '{unknown[0]}'.{hint}"
    try:
        signature.bind(*given, **options)
    except TypeError as error:
        return f"[{caller}] {error}.{hint}"
    raise AssertionError("the arguments fit the signature")


def _positional_hint(signature: inspect.Signature, count: int) -> str:
    """What to write instead if ``count`` positional arguments are too many."""
    parameters = signature.parameters.values()
    by_keyword = [repr(p.name) for p in parameters if p.kind is p.KEYWORD_ONLY]
    if count <= len(parameters) - len(by_keyword):
        return ""
    return f" Pass {', '.join(by_keyword)} by keyword."


def not_values(caller: str, x: Any, pair_hint: str) -> TypeError:
    """The error for an argument ``x`` that is no array of values that can be pooled or unpooled.

    ``pair_hint`` ends the message if ``x`` is the pair ``(values, indices)`` of a pool.
    """
    if not isinstance(x, mx.array):
        return _not_an_array(caller, "x", x, pair_hint)
    names = ", ".join(str(dtype).removeprefix("mlx.core.") for dtype in TRAITS)
    return TypeError(message(caller, "x", f"have one of the dtypes {names}", x.dtype))


def _not_an_array(caller: str, name: str, x: Any, pair_hint: str) -> TypeError:
    hint = " Convert it with mx.array(...)." if hasattr(x, "__len__") else ""
    if _is_pair(x):
        hint = f" {_PAIR}: {pair_hint}."
    return TypeError(f"[{caller}] '{name}' must be an mlx array but got {type(x).__name__}.{hint}")


_PAIR = "A pool with return_indices=True returns the pair (values, indices)"


def _is_pair(x: Any) -> bool:
    """Whether ``x`` is a pair of arrays, as a pool with ``return_indices=True`` returns."""
    return isinstance(x, tuple) and [*map(type, x)] == [mx.array] * 2


def check_index_array(caller: str, indices: Any, values: Any = None) -> None:
    """Check an array of indices. ``values`` is used only to detect that the two were swapped."""
    if not isinstance(indices, mx.array):
        raise _not_an_array(caller, "indices", indices, "pass only the indices")
    if indices.dtype not in TRAITS or is_float(indices.dtype):
        hint = ""
        if is_float(indices.dtype):
            hint = " Did the pool have return_indices=True?"
            if values is not None and not is_float(values.dtype):
                hint += " Or are 'x' and 'indices' swapped?"
            hint += (
                " Keras layers often cast their indices to floatx: use indices.astype(mx.int64)."
            )
        needed = "have an integer dtype"
        raise TypeError(message(caller, "indices", needed, indices.dtype) + hint)


def check_stream(caller: str, value: Any) -> None:
    """Check a stream or device."""
    if isinstance(value, (mx.Stream, mx.ThreadLocalStream)):
        return
    if not isinstance(value, (mx.Device, mx.DeviceType)):
        raise TypeError(message(caller, "stream", "be a stream, a device or None", value))
    if not mx.is_available(value):
        raise ValueError(message(caller, "stream", "be an available device", value))


def choice(caller: str, name: str, value: Any, allowed: Sequence[S]) -> S:
    """Check an option; return the string in ``allowed`` that equals its text.

    ``value`` itself, of a subclass of ``str``, could also be equal to other keys of a cache.
    """
    plain = str.__str__(value) if isinstance(value, str) else ""
    if plain in allowed:
        return cast("S", plain)
    *others, last = (f"'{option}'" for option in allowed)
    same = LAYOUTS.get(plain)
    hint = f" {plain} is '{same}'." if same in allowed else ""
    raise ValueError(message(caller, name, f"be {', '.join(others)} or {last}", value) + hint)


def index_format_of(caller: str, value: Any, window: Window | None) -> IndexFormat:
    """The format of indices, checked. Offsets need a window, one that is not too large for them."""
    if choice(caller, "index_format", value, INDEX_FORMATS) == "flat":
        return "flat"
    if window is None:
        needed = "be 'flat' or None if 'kernel_size' is None"
        raise ValueError(message(caller, "index_format", needed, value))
    if window.elements > MAX_WINDOW_INDICES:
        windows = f"windows of more than {MAX_WINDOW_INDICES} elements, here {window.elements},"
        raise ValueError(message(caller, "index_format", f"be 'flat' for {windows}", value))
    return "window"


def check_flag(caller: str, name: str, value: Any) -> None:
    """Check a boolean option."""
    if not isinstance(value, bool):
        raise TypeError(message(caller, name, "be True or False", value))


def integers(caller: str, name: str, value: Any, count: int, least: int) -> tuple[int, ...]:
    """Check an integer or a sequence; return one integer, ``least`` or more, per axis."""
    needed = "be an integer" + (f" or a tuple of {count} integers" if count > 1 else "")
    given = sequence(value, count)
    return checked_integers(caller, name, value, needed, given, len(given) == count, least)


def padding_pairs(caller: str, value: Any, count: int) -> tuple[tuple[int, int], ...] | None:
    """Check a padding; return a pair (before, after) per axis, or None for "same"."""
    if isinstance(value, str):
        is_same = choice(caller, "padding", value, ("same", "valid")) == "same"
        return None if is_same else ((0, 0),) * count
    pairs = [tuple(sequence(sides, 2)) for sides in sequence(value, count)]
    several = f"a tuple of {count} integers or pairs (before, after)"
    needed = f"be an integer, 'same', 'valid' or {several if count > 1 else '((before, after),)'}"
    are_pairs = [*map(len, pairs)] == [2] * count
    numbers = checked_integers(caller, "padding", value, needed, sum(pairs, ()), are_pairs, least=0)
    return tuple(zip(numbers[::2], numbers[1::2]))


def channels_come_first(caller: str, data_format: Any) -> bool:
    """Check ``data_format`` and return whether it is ``"channels_first"``."""
    return choice(caller, "data_format", data_format, DATA_FORMATS) == "channels_first"


def window_of(
    caller: str,
    rank: int,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: Any = False,
) -> Window:
    """The window over ``rank`` axes with these arguments, checked."""
    kernel = integers(caller, "kernel_size", kernel_size, rank, least=1)
    strides = kernel if stride is None else integers(caller, "stride", stride, rank, least=1)
    pads = padding_pairs(caller, padding, rank)
    dilations = integers(caller, "dilation", dilation, rank, least=1)
    check_flag(caller, "ceil_mode", ceil_mode)
    window = _window(kernel, strides, pads, dilations, ceil_mode)
    sides = zip(window.padding, window.padding_after, window.span)
    # Otherwise a window could be in the padding completely.
    if any(max(before, after) >= n for before, after, n in sides):
        span = f"dilation * (kernel_size - 1) + 1 = {untriple(window.span, rank)} positions"
        needed = f"be less than the window ({span}) on each side"
        raise ValueError(message(caller, "padding", needed, padding))
    return window


@functools.lru_cache(256)
def _window(kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Window:
    before, after = (triple(side, 0) for side in zip(*padding)) if padding else ((0, 0, 0),) * 2
    sizes = triple(kernel), triple(stride), before, triple(dilation)
    return Window(*sizes, ceil_mode, after, same=padding is None)


def check_no_window(caller: str, stride: Any, padding: Any, dilation: Any) -> None:
    """Check that the window's arguments have their defaults, because 'kernel_size' is None."""
    given = ("stride", stride, None), ("padding", padding, 0), ("dilation", dilation, 1)
    for name, value, default in given:
        if type(value) is not type(default) or value != default:
            needed = f"be left at {default} if 'kernel_size' is None"
            raise ValueError(message(caller, name, needed, value))


def shape(caller: str, name: str, value: Any) -> int | tuple[int, ...]:
    """Check a shape, given as a sequence or as one integer for all axes; return it in this form."""
    if type(value) is tuple and all(type(n) is int and n <= LARGEST_AXIS for n in value):
        return value  # the usual case, fast
    needed = "be an integer or a tuple of integers"
    return as_given(value, checked_integers(caller, name, value, needed, sequence(value, 1)))


def checked_integers(
    caller: str,
    name: str,
    value: Any,
    needed: str,
    given: Sequence[Any],
    is_complete: bool = True,
    least: float = -math.inf,
) -> tuple[int, ...]:
    """The numbers that ``value`` gives, checked; ``needed`` is the form of a complete value."""
    numbers = all_integers(given)
    if numbers is None:
        raise wrong_type(caller, name, needed, value)
    at_most = "be at most 2^31 - 1, the longest axis of an mlx array,"
    for is_right, rule in (
        (is_complete, needed),
        (min(numbers, default=least) >= least, f"be {least} or more"),
        (max(numbers, default=0) <= LARGEST_AXIS, at_most),
    ):
        if not is_right:
            raise ValueError(message(caller, name, rule, value))
    return numbers


def sequence(value: Any, count: int) -> Sequence[Any]:
    """A tuple or list itself; any other value ``count`` times, an integer as an int."""
    if isinstance(value, (tuple, list)):
        return value
    numbers = all_integers([value])  # so that ``__index__`` is called once, not ``count`` times
    return [value if numbers is None else numbers[0]] * count


def as_given(value: Any, numbers: tuple[Any, ...]) -> Any:
    """The checked ``numbers`` of an argument in its form: a tuple, or one number for all axes.

    So a message about the size of an array can show the argument as it was passed.
    """
    return numbers if isinstance(value, (tuple, list)) else numbers[0]


def all_integers(numbers: Sequence[Any]) -> tuple[int, ...] | None:
    """``numbers`` as ints, or None if one of them is not an integer (a bool, a float, an array)."""
    if any(isinstance(number, (bool, mx.array)) for number in numbers):
        return None
    try:
        return tuple(operator.index(number) for number in numbers)
    except TypeError:
        return None
