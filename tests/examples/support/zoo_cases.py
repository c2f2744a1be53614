"""The models of the zoo that are compared with their twins in PyTorch."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autoencoder_twins import ConvAutoencoder3dTwin, InceptionAutoencoderTwin
from brain_twins import FastSurferCNNTwin, FastSurferVINNTwin, HypVINNTwin, QuickNATTwin
from hair_twin import HairSegmenterTwin
from pytorch_twins import ENetTwin, SegNetTwin


@dataclass
class Case:
    """A model of the zoo and its twin in PyTorch."""

    model_type: str
    twin: Callable[[], Any]
    shape: tuple[int, ...]  # of the input, channels last
    config: dict[str, Any]
    further: tuple[Any, ...]  # scale and weight factors of VINN


def case(name: str, twin: Any, shape: tuple, *further: Any, inner: Any = None, **options: Any) -> Case:
    config = {"width": inner[0], "height": inner[1]} if inner else {}
    options |= {"inner": inner} if inner else {}
    return Case(name, functools.partial(twin, **options), shape, config, further)


vinn = functools.partial(case, "fastsurfer_vinn", FastSurferVINNTwin, filters=8, between=4)
hypvinn = functools.partial(
    case,
    "hypvinn",
    HypVINNTwin,
    (2, 64, 80, 14),
    [1.25, 1.1],
    classes=27,
    filters=8,
    between=4,
    inner=(48, 64),
)
cnn = functools.partial(case, "fastsurfer_cnn", FastSurferCNNTwin, filters=8)
cerebnet = functools.partial(case, "cerebnet", FastSurferCNNTwin, filters=8, count=3)
quicknat = functools.partial(case, "quicknat", QuickNATTwin, classes=33, filters=8)
inception = functools.partial(case, "inception_autoencoder", InceptionAutoencoderTwin)
CASES = {
    "segnet": case("segnet", SegNetTwin, (2, 64, 48, 3), classes=5, channels=(4, 6, 8, 8, 8)),
    "segnet, odd": case("segnet", SegNetTwin, (2, 53, 70, 3), classes=5, channels=(8, 16, 32, 64, 64)),
    "enet": case("enet", ENetTwin, (2, 48, 64, 3), classes=5),
    "hair": case("hair", HairSegmenterTwin, (2, 64, 96, 4)),
    "fastsurfer_cnn": cnn((2, 64, 48, 7), classes=79),
    "fastsurfer_cnn, sagittal": cnn((1, 64, 48, 7), classes=51, kernel=3),
    "fastsurfer_vinn, cropped": vinn((2, 64, 80, 7), [1.25, 1.1], classes=79, inner=(48, 64)),
    "fastsurfer_vinn, padded": vinn((2, 64, 48, 7), [1.25, 1.25], classes=51, inner=(64, 64)),
    "cerebnet": cerebnet((2, 64, 48, 7), classes=28),
    "cerebnet, sagittal": cerebnet((1, 32, 48, 7), classes=17, kernel=3),
    "hypvinn, learnt weights": hypvinn((0.5, 0.5)),
    "hypvinn, T1 alone": hypvinn((1.0, 0.0)),
    "hypvinn, T2 alone": hypvinn((0.0, 1.0)),
    **{f"quicknat, {kind}": quicknat((2, 64, 48, 1), kind=kind) for kind in ("NONE", "CSE", "SSE", "CSSE")},
    "quicknat, odd": quicknat((1, 61, 47, 1)),
    "inception_autoencoder": inception((4, 301, 1), filters=8, narrow=8),
    "inception_autoencoder, 3 channels": inception(
        (2, 160, 3), inputs=3, filters=4, sizes=(5, 11, 23), narrow=6
    ),
    "conv_autoencoder_3d": case(
        "conv_autoencoder_3d", ConvAutoencoder3dTwin, (1, 21, 26, 19, 1), channels=(4, 8, 8)
    ),
}
