"""What all layers share: arguments as attributes, which are checked in every call, and a repr."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from . import _arguments as arguments
from ._types import ArrayOrPair, Stream

# The function that pooling layers call instead of pooling, with themselves, their input and the
# stream as arguments.
instead_of_pooling: ContextVar[Callable[..., Any] | None] = ContextVar(
    "instead_of_pooling", default=None
)


class Layer(nn.Module):
    """Base class of all layers."""

    rank: int
    _repr_names: tuple[str, ...]  # arguments that the repr always shows
    _repr_defaults: ClassVar[dict[str, Any]] = {  # options that it shows if they differ from these
        "dilation": 1,
        "ceil_mode": False,
        "return_indices": None,  # pools always show it, so that they differ from those of mlx.nn
        "index_format": "flat",
        "data_format": "channels_last",
    }
    _request_of: Callable[..., Any]  # returns the request for a caller, a rank and the next
    _given: Callable[[Any], tuple[Any, ...]]  # returns the current attributes

    def _request(self) -> Any:
        """The request with the current attributes, checked."""
        return self._request_of(type(self).__name__, self.rank, *self._given(self))

    def _extra_repr(self) -> str:
        options = self._repr_defaults.items()
        changed = [name for name, old in options if repr(getattr(self, name, old)) != repr(old)]
        names = [*self._repr_names, *changed]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _normalised(value))

    def __setitem__(self, name: str, value: Any) -> None:
        self.__dict__.pop(name, None)  # where mlx.nn stores numbers, which would take precedence
        super().__setitem__(name, _normalised(value))


class PoolingLayer(Layer):
    """Base class of the pooling layers."""

    @arguments.checked_call
    def __call__(self, x: mx.array, *, stream: Stream = None) -> ArrayOrPair:
        """Pool ``x``.

        In training mode on a GPU, the positions of the maxima are kept for the gradient. After
        ``eval()`` they are kept only with ``return_indices``; otherwise a gradient computes them
        again.

        Args:
            x (array): Shape ``(N, ..., C)``, or ``(N, C, ...)`` with
                ``data_format="channels_first"``; the batch dimension is optional.
            stream (Stream or Device, optional): Stream or device to run on.

        Returns:
            array or tuple of array: Values or, with ``return_indices``, ``(values, indices)`` of
                equal shape.

        Raises:
            ValueError: If the arrays are too large for the device (about 2^31 elements on the CPU)
                or a window does not fit into the padded input (not in adaptive pooling).
        """
        if instead := instead_of_pooling.get():
            return instead(self, x, stream)
        return self._request().run(x, stream, self._training)  # without a property's call


def _normalised(value: Any, depth: int = 2) -> Any:
    """An argument as a layer stores it: plain integers, and tuples instead of lists.

    ``mlx.nn.Module`` treats a list as a list of modules. A list can contain itself, hence the
    ``depth``.
    """
    if isinstance(value, list) or (type(value) is tuple and list in map(type, value)):
        return tuple(_normalised(item, depth - 1) for item in value) if depth else tuple(value)
    numbers = arguments.all_integers([value])  # including NumPy's
    return value if numbers is None else numbers[0]
