"""Writes a model as a file that runs without Python and without this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_map

import mlx_unpool


def export(path: str | Path, model: nn.Module, *inputs: mx.array, tolerance: float = 1e-4) -> None:
    """Exports a model for inputs of the shapes of these, and makes sure that the file gives what it gives.

    ``mx.export_function`` writes every array that a function holds as it lies in memory and does not write
    its
    strides: a transposed one comes back as another. Arrays that are yet to be loaded it refuses. So the
    parameters are made contiguous and evaluated first. What else a model may hold is found out by
    running the file.

    Args:
        path: The file to write, ``.mlxfn``.
        model: A model in evaluation mode; called with ``inputs``, it gives an array or several.
        *inputs: Arrays to trace it with, and to compare with.
        tolerance: How far results may differ, as a share of their largest number.

    Raises:
        ValueError: If the model is in training mode.
        RuntimeError: If what was exported gives something else. The file is removed.
    """
    path = Path(path)
    if model.training:
        raise ValueError("[export] 'model' must be in evaluation mode: call model.eval() first.")
    model.update(tree_map(mx.contiguous, model.parameters()))
    mx.eval(model.parameters())
    with mlx_unpool.exporting():
        mx.export_function(str(path), model, *inputs)
    expected = model(*inputs)
    expected = [expected] if isinstance(expected, mx.array) else expected
    imported: Any = mx.import_function(str(path))
    for one, other in zip(imported(*inputs), expected, strict=True):
        scale = float(mx.abs(other).max())
        difference = float(mx.abs(one.astype(mx.float32) - other.astype(mx.float32)).max())
        if not difference <= tolerance * max(scale, 1e-6):
            path.unlink()
            raise RuntimeError(
                f"[export] The exported model differs by {difference:.3g} where results reach {scale:.3g}: "
                "it holds an array that is no parameter and not contiguous. Use mx.contiguous on it."
            )
