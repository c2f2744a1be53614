"""Segmentation networks with max unpooling, ported from PyTorch to MLX."""

from __future__ import annotations

try:
    import huggingface_hub  # noqa: F401
    import numpy  # noqa: F401
    import pooch  # noqa: F401
    import pydantic  # noqa: F401
    import safetensors  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"mlx_unpool_zoo needs {error.name}, which the extra [zoo] of mlx-unpool installs: "
        'pip install "mlx-unpool[zoo] @ git+https://github.com/mlx-unpool/mlx-unpool"',
        name=error.name,
    ) from None

from mlx_unpool import __version__

from . import metrics, pytorch
from .about import About
from .classes import CAMVID, CEREBNET, FASTSURFER, read_classes
from .enet import ENet
from .fastsurfer import CerebNet, FastSurferCNN, FastSurferVINN, HypVINN
from .hair import HairSegmenter
from .model import MODELS, Model, from_pretrained, from_pytorch
from .near_ties import Comparison, compare_port, pooled_indices
from .quicknat import QuickNAT
from .relaynet import ReLayNet
from .segnet import SegNet

# fmt: off
__all__ = [
    "CAMVID", "CEREBNET", "FASTSURFER", "MODELS", "About", "CerebNet", "Comparison",
    "ENet", "FastSurferCNN", "FastSurferVINN", "HairSegmenter", "HypVINN",
    "Model", "QuickNAT", "ReLayNet", "SegNet", "__version__", "compare_port",
    "from_pretrained", "from_pytorch", "metrics", "pooled_indices", "pytorch", "read_classes",
]
# fmt: on
