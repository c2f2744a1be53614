"""A small model of each kind in the zoo."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx_unpool_zoo as zoo
from mlx.utils import tree_map

VINN = {"num_filters": 4, "num_filters_interpol": 3, "height": 16, "width": 32}
# Arguments, and the shape of an input.
SMALL: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "segnet": ({"num_classes": 4, "channels": [4, 6], "convolutions": [1, 2]}, (1, 21, 22, 3)),
    "enet": ({"num_classes": 4}, (1, 24, 16, 3)),
    "fastsurfer_cnn": ({"num_classes": 5, "num_filters": 4}, (1, 32, 16, 7)),
    "fastsurfer_vinn": (VINN, (1, 32, 40, 7)),
    "cerebnet": ({"num_classes": 5, "num_filters": 4}, (1, 32, 16, 7)),
    "hypvinn": ({"num_classes": 5, **VINN}, (1, 32, 40, 14)),
    "quicknat": ({"num_filters": 4, "se_block": "SSE"}, (1, 21, 35, 1)),
    "inception_autoencoder": ({"n_filters": 2, "kernel_sizes": [3, 5, 7]}, (2, 40, 1)),
    "conv_autoencoder_3d": ({"channels": [2, 4]}, (1, 7, 9, 8, 1)),
}


def small_model(model_type: str) -> tuple[zoo.Model, mx.array]:
    """A small model with random weights and statistics, and an input."""
    config, shape = SMALL[model_type]
    mx.random.seed(1)
    model = zoo.MODELS[model_type](**config)
    weights = tree_map(
        lambda v: mx.random.uniform(0.5, 1.5, v.shape) if v.ndim < 2 else v, model.parameters()
    )
    model.update(weights)
    return model.eval(), mx.random.normal(shape)


def sizes_of(model: zoo.Model) -> dict[str, int]:
    """The arguments that cannot be inferred from the shapes of the weights."""
    return {name: model.config[name] for name in ("height", "width") if name in model.config}
