"""Segmentation networks with max unpooling, ported from PyTorch to MLX.

A module is imported when one of its names is used: ``read_state``, for example, needs only NumPy
and safetensors.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .messages import pip_install

try:
    from mlx_unpool import __version__
except ImportError:  # with this name, ``python -m`` prints the message as one line
    raise ImportError(f"mlx_unpool_zoo needs MLX: {pip_install('zoo')}", name=__name__) from None

if TYPE_CHECKING:
    from . import metrics
    from .about import About
    from .checkpoints import read_state, read_tflite
    from .classes import CAMVID, CEREBNET, FASTSURFER, read_classes
    from .enet import ENet
    from .fastsurfer import CerebNet, FastSurferCNN, FastSurferVINN, HypVINN
    from .hair import HairSegmenter
    from .model import MODELS, Model, from_pretrained, from_pytorch
    from .quicknat import QuickNAT
    from .relaynet import ReLayNet
    from .segnet import SegNet

# fmt: off
__all__ = [
    "CAMVID", "CEREBNET", "FASTSURFER", "MODELS", "About", "CerebNet", "ENet",
    "FastSurferCNN", "FastSurferVINN", "HairSegmenter", "HypVINN", "Model", "QuickNAT",
    "ReLayNet", "SegNet", "__version__", "from_pretrained", "from_pytorch", "metrics",
    "read_classes", "read_state", "read_tflite",
]
# fmt: on
_LIGHT = {"metrics": ["metrics"], "checkpoints": ["read_state", "read_tflite"]}
_LIGHT |= {"classes": ["CAMVID", "CEREBNET", "FASTSURFER", "read_classes"]}
_NETWORKS = ("enet", "fastsurfer", "hair", "quicknat", "relaynet", "segnet")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    wanted = [module for module, names in _LIGHT.items() if name in names]
    try:
        # All networks: ``from_pretrained`` and MODELS have those that are imported.
        modules = [
            importlib.import_module(f".{each}", __name__)
            for each in wanted or ("model", *_NETWORKS)
        ]
    except ImportError as error:
        raise ImportError(
            f"mlx_unpool_zoo needs {error.name}, which the extra [zoo] of mlx-unpool installs: "
            f"{pip_install('zoo')}",
            name=error.name,
        ) from None
    return (
        modules[0] if wanted == [name] else next(vars(m)[name] for m in modules if name in vars(m))
    )


def __dir__() -> list[str]:
    return sorted(__all__)
