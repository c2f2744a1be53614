"""The models of the zoo that are compared with their twins in PyTorch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from autoencoder_twins import ConvAutoencoder3dTwin, InceptionAutoencoderTwin
from brain_twins import CerebNetTwin, FastSurferCNNTwin, FastSurferVINNTwin, HypVINNTwin, QuickNATTwin
from hair_twin import HairSegmenterTwin
from pytorch_twins import ENetTwin, SegNetTwin


@dataclass
class Case:
    """A model of the zoo and its twin in PyTorch."""

    model_type: str
    twin: Callable[[], Any]
    shape: tuple[int, ...]  # of the input, channels last
    config: dict[str, Any] = field(default_factory=dict)
    further: list[Any] = field(default_factory=list)  # scale and weight factors of VINN


def vinn(classes: int, width: int, voxels: float, size: tuple[int, int]) -> Case:
    def twin() -> Any:
        return FastSurferVINNTwin(classes, filters=8, between=4, inner=(width, 64))

    config = {"width": width, "height": 64}
    return Case("fastsurfer_vinn", twin, (2, *size, 7), config, [[1.25, voxels]])


def hypvinn(weights: tuple[float, float]) -> Case:
    def twin() -> Any:
        return HypVINNTwin(27, filters=8, between=4, inner=(48, 64))

    config = {"width": 48, "height": 64}
    return Case("hypvinn", twin, (2, 64, 80, 14), config, [[1.25, 1.1], weights])


CASES = {
    "segnet": Case("segnet", lambda: SegNetTwin(5, (4, 6, 8, 8, 8)), (2, 64, 48, 3)),
    "segnet, odd": Case("segnet", lambda: SegNetTwin(5, (8, 16, 32, 64, 64)), (2, 53, 70, 3)),
    "enet": Case("enet", lambda: ENetTwin(5), (2, 48, 64, 3)),
    "hair": Case("hair", HairSegmenterTwin, (2, 64, 96, 4)),
    "fastsurfer_cnn": Case("fastsurfer_cnn", lambda: FastSurferCNNTwin(79, filters=8), (2, 64, 48, 7)),
    "fastsurfer_cnn, sagittal": Case(
        "fastsurfer_cnn", lambda: FastSurferCNNTwin(51, filters=8, kernel=3), (1, 64, 48, 7)
    ),
    "fastsurfer_vinn, cropped": vinn(79, 48, 1.1, (64, 80)),
    "fastsurfer_vinn, padded": vinn(51, 64, 1.25, (64, 48)),
    "cerebnet": Case("cerebnet", lambda: CerebNetTwin(28, filters=8), (2, 64, 48, 7)),
    "cerebnet, sagittal": Case("cerebnet", lambda: CerebNetTwin(17, filters=8, kernel=3), (1, 32, 48, 7)),
    "hypvinn, learnt weights": hypvinn((0.5, 0.5)),
    "hypvinn, T1 alone": hypvinn((1.0, 0.0)),
    "hypvinn, T2 alone": hypvinn((0.0, 1.0)),
    **{
        f"quicknat, {kind}": Case(
            "quicknat", lambda kind=kind: QuickNATTwin(33, kind, filters=8), (2, 64, 48, 1)
        )
        for kind in ("NONE", "CSE", "SSE", "CSSE")
    },
    "quicknat, odd": Case("quicknat", lambda: QuickNATTwin(33, filters=8), (1, 61, 47, 1)),
    "inception_autoencoder": Case(
        "inception_autoencoder", lambda: InceptionAutoencoderTwin(filters=8, narrow=8), (4, 301, 1)
    ),
    "inception_autoencoder, 3 channels": Case(
        "inception_autoencoder", lambda: InceptionAutoencoderTwin(3, 4, (5, 11, 23), 6), (2, 160, 3)
    ),
    "conv_autoencoder_3d": Case(
        "conv_autoencoder_3d", lambda: ConvAutoencoder3dTwin(channels=(4, 8, 8)), (1, 21, 26, 19, 1)
    ),
}
