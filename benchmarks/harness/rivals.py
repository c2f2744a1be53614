"""Alternatives to this library: plain MLX operations, and PyTorch with both memory layouts."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

# Otherwise PyTorch's idle threads spin on the core that the next measurement needs.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["KMP_BLOCKTIME"] = "0"

import mlx.core as mx
import numpy as np
import torch

TORCH_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def naive_pool(x: mx.array, kernel: int, stride: int, padding: int) -> tuple[mx.array, mx.array]:
    """Pooling with ``argmax`` over sliding windows and ``take_along_axis``. Returns window indices."""
    if padding:
        edge = [(0, 0), (padding, padding), (padding, padding), (0, 0)]
        x = mx.pad(x, edge, constant_values=-float("inf"))
    n, h, w, c = x.shape
    rows, columns = (h - kernel) // stride + 1, (w - kernel) // stride + 1
    strides = (h * w * c, stride * w * c, stride * c, 1, w * c, c)
    windows = mx.as_strided(x, (n, rows, columns, c, kernel, kernel), strides)
    windows = windows.reshape(n, rows, columns, c, kernel * kernel)
    indices = mx.argmax(windows, axis=-1, keepdims=True)
    return mx.take_along_axis(windows, indices, axis=-1)[..., 0], indices[..., 0]


def naive_unpool(values: mx.array, indices: mx.array, size: tuple[int, int]) -> mx.array:
    """Unpooling with ``put_along_axis`` into zeros. Indices are not checked."""
    n, _, _, c = values.shape
    full = mx.zeros((n, size[0] * size[1], c), values.dtype)
    positions, flat = indices.reshape(n, -1, c), values.reshape(n, -1, c)
    return mx.put_along_axis(full, positions, flat, axis=1).reshape(n, *size, c)


def naive_unpool_backward(cotangent: mx.array, indices: mx.array) -> mx.array:
    """The gradient with ``take_along_axis``. Nothing is checked, and overwritten values get a gradient."""
    n, _, _, c = indices.shape
    flat = cotangent.reshape(n, -1, c)
    return mx.take_along_axis(flat, indices.reshape(n, -1, c), axis=1).reshape(indices.shape)


def to_torch(x: mx.array, dtype: str, channels_last: bool) -> torch.Tensor:
    """An NHWC array as a PyTorch tensor (N, C, H, W), contiguous or in the channels_last memory format."""
    tensor = torch.from_numpy(np.array(x.astype(mx.float32))).to(TORCH_DTYPES[dtype])
    tensor = tensor.permute(0, 3, 1, 2)
    order = torch.channels_last if channels_last else torch.contiguous_format
    return tensor.contiguous(memory_format=order)


def with_threads(threads: int, run: Callable[[], Any]) -> Callable[[], Any]:
    """A function that runs PyTorch on this number of threads."""

    def call() -> Any:
        torch.set_num_threads(threads)
        return run()

    return call


def finished(device: str, run: Callable[[], Any]) -> Callable[[], None]:
    """A function that runs PyTorch on a GPU and waits until it has finished."""

    def call() -> None:
        run()
        (torch.cuda if device == "cuda" else torch.mps).synchronize()

    return call


def devices() -> list[str]:
    """The devices of PyTorch on this machine, without the CPU."""
    found = ["cuda"] if torch.cuda.is_available() else []
    return found + (["mps"] if torch.backends.mps.is_available() else [])
