"""What a user would take instead: plain MLX, and PyTorch in both of its layouts."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

# PyTorch's idle threads would spin and take the core that the next rival runs on.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["KMP_BLOCKTIME"] = "0"

import mlx.core as mx
import numpy as np
import torch

TORCH_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def naive_pool(x: mx.array, kernel: int, stride: int, padding: int) -> tuple[mx.array, mx.array]:
    """``argmax`` over sliding windows and ``take_along_axis``; indices inside the window."""
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
    """Zeros and ``put_along_axis``, without a check of the indices."""
    n, _, _, c = values.shape
    full = mx.zeros((n, size[0] * size[1], c), values.dtype)
    places, flat = indices.reshape(n, -1, c), values.reshape(n, -1, c)
    return mx.put_along_axis(full, places, flat, axis=1).reshape(n, *size, c)


def naive_unpool_backward(cotangent: mx.array, indices: mx.array) -> mx.array:
    """``take_along_axis``, without a check and without asking who won."""
    n, _, _, c = indices.shape
    flat = cotangent.reshape(n, -1, c)
    return mx.take_along_axis(flat, indices.reshape(n, -1, c), axis=1).reshape(indices.shape)


def to_torch(x: mx.array, dtype: str, channels_last: bool) -> torch.Tensor:
    """An NHWC array as PyTorch keeps it, (N, C, H, W) in one of two orders of memory."""
    tensor = torch.from_numpy(np.array(x.astype(mx.float32))).to(TORCH_DTYPES[dtype])
    tensor = tensor.permute(0, 3, 1, 2)
    order = torch.channels_last if channels_last else torch.contiguous_format
    return tensor.contiguous(memory_format=order)


def with_threads(threads: int, run: Callable[[], Any]) -> Callable[[], Any]:
    """Runs PyTorch on so many threads."""

    def call() -> Any:
        torch.set_num_threads(threads)
        return run()

    return call


def finished(device: str, run: Callable[[], Any]) -> Callable[[], None]:
    """Runs PyTorch on a GPU until it is done."""

    def call() -> None:
        run()
        (torch.cuda if device == "cuda" else torch.mps).synchronize()

    return call


def devices() -> list[str]:
    """What PyTorch has here besides the CPU."""
    found = ["cuda"] if torch.cuda.is_available() else []
    return found + (["mps"] if torch.backends.mps.is_available() else [])
