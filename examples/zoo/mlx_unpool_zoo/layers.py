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
    """``mlx.nn.BatchNorm`` that also accepts volumes (N, D, H, W, C), with more accurate
    statistics.

    ``unfreeze`` never makes its running statistics trainable. Arguments as for
    ``mlx.nn.BatchNorm``.
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


class DilatedConv2d(nn.Conv2d):
    """``mlx.nn.Conv2d`` for kernels that keep the size, with a faster dilation on the CPU.

    MLX's CPU backend multiplies matrices only for convolutions without dilation. Positions
    ``dilation`` apart are therefore brought together as images of their own: the same products and
    sums, 2 to 20 times as fast.
    """

    def __call__(self, x: mx.array) -> mx.array:
        n = max(self.dilation) if isinstance(self.dilation, tuple) else self.dilation
        batch, height, width, _ = x.shape
        rows, columns = -(-height // n), -(-width // n)
        # On maps smaller than the dilation, almost all of the added positions would be padding.
        if n == 1 or mx.default_device() != mx.cpu or rows * n * columns * n > 2 * height * width:
            return super().__call__(x)
        x = mx.pad(x, [(0, 0), (0, rows * n - height), (0, columns * n - width), (0, 0)])
        x = x.reshape(batch, rows, n, columns, n, -1).transpose(2, 4, 0, 1, 3, 5)
        x = mx.conv2d(x.reshape(n * n * batch, rows, columns, -1), self.weight, padding=1)
        x = x.reshape(n, n, batch, rows, columns, -1).transpose(2, 3, 0, 4, 1, 5)
        x = x.reshape(batch, rows * n, columns * n, -1)[:, :height, :width]
        return x + self.bias if "bias" in self else x


class DoublingConv2d(nn.ConvTranspose2d):
    """The transposed 3 x 3 convolution that doubles height and width.

    MLX's CPU backend has no fast path for it. There, it is four convolutions, one for each parity
    of the rows and columns of the output, 4 to 20 times as fast.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, stride=2, padding=1, output_padding=1, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        if mx.default_device() != mx.cpu:
            return super().__call__(x)
        batch, height, width, _ = x.shape
        w, beyond = self.weight, mx.pad(x, [(0, 0), (0, 1), (0, 1), (0, 0)])
        # Even rows of the output depend on one row of the input, through row 1 of the kernel, odd
        # rows on two.
        rows = [(beyond[:, :height], w[:, 1:2]), (beyond, w[:, ::-2])]
        both = [((x[:, :, :width], k[:, :, 1:2]), (x, k[:, :, ::-2])) for x, k in rows]
        parts = [mx.stack([mx.conv2d(x, k) for x, k in pair], axis=3) for pair in both]
        return mx.stack(parts, axis=2).reshape(batch, 2 * height, 2 * width, -1)


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
