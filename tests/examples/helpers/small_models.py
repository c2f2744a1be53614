"""A small model of each kind in the zoo, and files of its weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_unpool_zoo as zoo
import numpy as np
from mlx.utils import tree_flatten, tree_map
from mlx_unpool_zoo.files import load_arrays, save_arrays

from mlx_unpool.porting import to_state_dict

VINN = {"num_filters": 4, "num_filters_interpol": 3, "height": 16, "width": 32}
# Arguments, and the shape of an input.
SMALL: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "segnet": ({"num_classes": 4, "channels": [4, 6], "convolutions": [1, 2]}, (1, 21, 22, 3)),
    "enet": ({"num_classes": 4}, (1, 24, 16, 3)),
    "hair": ({"num_classes": 2}, (1, 32, 64, 4)),
    "fastsurfer_cnn": ({"num_classes": 5, "num_filters": 4}, (1, 32, 16, 7)),
    "fastsurfer_vinn": (VINN, (1, 32, 40, 7)),
    "cerebnet": ({"num_classes": 5, "num_filters": 4}, (1, 32, 16, 7)),
    "hypvinn": ({"num_classes": 5, **VINN}, (1, 32, 40, 14)),
    "quicknat": ({"num_filters": 4, "se_block": "SSE"}, (1, 21, 35, 1)),
    "relaynet": ({"num_filters": 4}, (2, 16, 24, 1)),
    "segnet, 1-D": (
        {"num_classes": 3, "channels": [4, 6], "convolutions": [1, 2], "dims": 1},
        (2, 40, 3),
    ),
    "segnet, 3-D": (
        {"num_classes": 3, "channels": [2, 4], "convolutions": [1, 1], "dims": 3},
        (1, 7, 9, 8, 3),
    ),
}


def randomised(model: nn.Module, all_weights: bool = False) -> nn.Module:
    """The model with random statistics, slopes and biases, and larger weights on request."""
    random = np.random.default_rng(0)

    def drawn(array: mx.array) -> mx.array:
        if array.ndim < 2:
            return mx.array(random.uniform(0.5, 1.5, array.shape).astype(np.float32))
        deviation = (2 / np.prod(array.shape[1:])) ** 0.5
        larger = mx.array(random.normal(0, deviation, array.shape).astype(np.float32))
        return larger if all_weights else array

    model.update(tree_map(drawn, model.parameters()))
    return model.eval()


def strided(model: nn.Module) -> nn.Module:
    """The model with weights that are not contiguous: their last axis comes first in memory."""
    turned = lambda v: mx.swapaxes(mx.contiguous(mx.swapaxes(v, 0, -1)), 0, -1) if v.ndim > 1 else v
    model.update(tree_map(turned, model.parameters()))
    mx.eval(model.parameters())
    return model


def small_model(model_type: str) -> tuple[zoo.Model, mx.array]:
    """A small model with random statistics, and an input."""
    config, shape = SMALL[model_type]
    mx.random.seed(1)
    return randomised(zoo.MODELS[model_type.partition(",")[0]](**config)), mx.random.normal(shape)


def sizes_of(model: zoo.Model) -> dict[str, int]:
    """The arguments that cannot be inferred from the shapes of the weights."""
    return {name: model.config[name] for name in ("height", "width") if name in model.config}


def save_state(
    path: Path, weights: Mapping[str, Any], metadata: dict[str, str] | None = None
) -> Path:
    """Write a safetensors file of a state dict, or of a model's weights under PyTorch's names."""
    if isinstance(weights, nn.Module):
        weights = to_state_dict(weights, weights.pytorch_names)
    arrays = {name: mx.array(value) for name, value in weights.items()}
    mx.save_safetensors(str(path), arrays, metadata)
    return path


def vgg16_state() -> tuple[zoo.SegNet, dict[str, mx.array]]:
    """A SegNet with an eighth of VGG-16's channels; its encoder as torchvision's ``vgg16_bn``."""
    mx.random.seed(0)
    model = randomised(zoo.SegNet.vgg16(3, width=1 / 8))
    blocks = [block for stage in model.encoder for block in stage.layers]
    state = {"classifier.0.weight": mx.zeros((2, 2))}
    for number, block in zip(
        (0, 3, 7, 10, 14, 17, 20, 24, 27, 30, 34, 37, 40), blocks, strict=True
    ):
        state[f"features.{number}.weight"] = block.conv.weight.transpose(0, 3, 1, 2)
        state[f"features.{number}.bias"] = block.conv.bias
        state |= {
            f"features.{number + 1}.{name}": v for name, v in tree_flatten(block.norm.parameters())
        }
        state[f"features.{number + 1}.num_batches_tracked"] = mx.array(7)
    return model, state


def forget_config(folder: Path) -> None:
    """Remove the configuration from the weights in a folder, as in those that others publish."""
    path = folder / "model.safetensors"
    save_arrays(path, load_arrays(path)[0], {"format": "mlx"})


def edit_config(folder: Path, **changes: Any) -> None:
    """Change keys of the configuration in a folder; None removes a key.

    The configuration is then only in config.json.
    """
    forget_config(folder)
    config = json.loads((folder / "config.json").read_text()) | changes
    config = {
        name: value for name, value in config.items() if name not in changes or value is not None
    }
    (folder / "config.json").write_text(json.dumps(config))
