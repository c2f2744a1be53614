"""Layers that several models have."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn


class Frozen(set[str]):
    """The names of frozen parameters. The running statistics are always among them."""

    def __contains__(self, name: object) -> bool:
        return name in ("running_mean", "running_var") or super().__contains__(name)


class BatchNorm(nn.BatchNorm):
    """``mlx.nn.BatchNorm`` that also accepts volumes (N, D, H, W, C), with more accurate statistics.

    ``unfreeze`` never makes its running statistics trainable. Arguments as for ``mlx.nn.BatchNorm``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._no_grad = Frozen(self._no_grad)

    def __call__(self, x: mx.array) -> mx.array:
        if x.ndim < 5:
            return super().__call__(x)
        return super().__call__(x.flatten(1, -2)).reshape(x.shape)

    def _calc_stats(self, x: mx.array, ddof: int = 0) -> tuple[mx.array, mx.array]:
        if not self.training and self.track_running_stats:
            return self.running_mean, self.running_var
        return statistics_of(x, ddof)


class Classifier(nn.Module):
    """The convolution that computes the scores."""

    def __init__(self, inputs: int, classes: int, kernel_size: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, classes, kernel_size, stride)

    def __call__(self, x: mx.array) -> mx.array:
        return self.conv(x)


def statistics_of(x: mx.array, ddof: int = 0) -> tuple[mx.array, mx.array]:
    """The mean and the variance of each channel, computed in float32 or float64."""
    count = x.size // x.shape[-1]
    wide = x if x.dtype == mx.float64 else x.astype(mx.float32)
    mean = sum_in_stages(wide) / count
    variance = sum_in_stages(mx.square(wide - mean)) / (count - ddof)
    return mean.astype(x.dtype), variance.astype(x.dtype)


def sum_in_stages(x: mx.array, length: int = 64) -> mx.array:
    """The sum over all axes but the last, of at most ``length`` numbers at a time.

    ``mx.sum`` adds up all numbers in sequence on the CPU, which loses up to two digits of float32.
    """
    x = x.reshape(-1, x.shape[-1])
    while len(x) > 1:
        whole = len(x) // length * length
        parts = [x[:whole].reshape(-1, length, x.shape[-1]).sum(axis=1)]
        if whole < len(x):
            parts.append(x[whole:].sum(axis=0, keepdims=True))
        x = mx.concatenate(parts)
    return x[0]
