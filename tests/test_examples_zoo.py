"""The models of the zoo against PyTorch, with random weights and random statistics, and as folders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from mlx_unpool_zoo.near_ties import pooled_indices, share_of_flips
from mlx_unpool_zoo.pytorch import to_state_dict

torch = pytest.importorskip("torch")

from autoencoder_twins import ConvAutoencoder3dTwin, InceptionAutoencoderTwin  # noqa: E402
from brain_twins import FastSurferCNNTwin, FastSurferVINNTwin, QuickNATTwin  # noqa: E402
from pytorch_twins import ENetTwin, SegNetTwin, indices_of, randomise  # noqa: E402


@dataclass
class Case:
    """A model of the zoo and its twin."""

    model_type: str
    twin: Callable[[], Any]
    shape: tuple[int, ...]  # of the input, channels last
    config: dict[str, Any] = field(default_factory=dict)
    scale: list[float] | None = None  # further input of FastSurferVINN


CASES = {
    "segnet": Case("segnet", lambda: SegNetTwin(5, (4, 6, 8, 8, 8)), (2, 64, 48, 3)),
    "segnet, odd": Case("segnet", lambda: SegNetTwin(5, (4, 6, 8, 8, 8)), (1, 77, 53, 3)),
    "enet": Case("enet", lambda: ENetTwin(5), (2, 48, 64, 3)),
    "fastsurfer_cnn": Case(
        "fastsurfer_cnn", lambda: FastSurferCNNTwin(79, filters=8), (2, 64, 48, 7)
    ),
    "fastsurfer_cnn, sagittal": Case(
        "fastsurfer_cnn", lambda: FastSurferCNNTwin(51, filters=8, kernel=3), (1, 64, 48, 7)
    ),
    "fastsurfer_vinn, cropped": Case(
        "fastsurfer_vinn",
        lambda: FastSurferVINNTwin(79, filters=8, between=4, inner=(48, 64)),
        (2, 64, 80, 7),
        {"width": 48, "height": 64},
        [1.25, 1.1],
    ),
    "fastsurfer_vinn, padded": Case(
        "fastsurfer_vinn",
        lambda: FastSurferVINNTwin(51, filters=8, between=4, inner=(64, 64)),
        (2, 64, 48, 7),
        {"width": 64, "height": 64},
        [1.25, 1.25],
    ),
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
        "inception_autoencoder",
        lambda: InceptionAutoencoderTwin(3, 4, (5, 11, 23), 6),
        (2, 160, 3),
    ),
    "conv_autoencoder_3d": Case(
        "conv_autoencoder_3d", lambda: ConvAutoencoder3dTwin(channels=(4, 8, 8)), (1, 21, 26, 19, 1)
    ),
}


def first_to_last(x: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(x.detach().numpy(), 1, -1))


def last_to_first(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, -1, 1)))


def pair(name: str, seed: int = 0) -> tuple[zoo.Model, Any, np.ndarray]:
    """A model, the twin whose weights it has, and an input."""
    case = CASES[name]
    twin = randomise(case.twin(), seed).eval()
    model = zoo.from_pytorch(case.model_type, twin.state_dict(), **case.config)
    x = np.random.default_rng(seed).normal(size=case.shape).astype(np.float32)
    return model, twin, x


def theirs(name: str, twin: Any, x: np.ndarray) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The scores of a twin (N, C, ...) and its indices."""
    scale = CASES[name].scale
    result, indices = indices_of(twin, last_to_first(x), *([scale] if scale else []))
    if isinstance(result, dict):  # SegNetTwin notes every layer
        return result["scores"], [v for key, v in result.items() if key.startswith("indices")]
    return result if isinstance(result, tuple) else (result, indices)


def ours(name: str, model: zoo.Model, x: Any) -> mx.array:
    scale = CASES[name].scale
    return model(mx.array(x), *([scale] if scale else []))


@pytest.mark.parametrize("name", CASES)
def test_scores_agree_with_pytorch_and_indices_but_for_near_ties(name):
    model, twin, x = pair(name)
    with torch.no_grad():
        expected, twin_indices = theirs(name, twin, x)
    expected, twin_indices = first_to_last(expected), [first_to_last(i) for i in twin_indices]
    allowed = 1e-5 * np.ptp(expected)
    assert np.ptp(expected) > 0.1
    assert not model.training

    with pooled_indices() as indices:
        scores = np.array(ours(name, model, x))
    flips = share_of_flips(indices, twin_indices)
    difference = np.abs(scores - expected).max() / np.ptp(expected)
    count = sum(i.size for i in indices)
    print(f"{name}: {flips:.2e} of {count:,} indices flip; scores differ by {difference:.1e}")
    assert flips < 1e-3
    if flips == 0:
        assert np.abs(scores - expected).max() < allowed
    with pooled_indices(feed=twin_indices):  # whatever flipped
        fed = np.array(ours(name, model, x))
    assert np.abs(fed - expected).max() < allowed


def gradients(model: zoo.Model, loss_of: Callable, *inputs: mx.array) -> dict[str, np.ndarray]:
    """The gradient of every parameter, with the names and the layout of PyTorch."""
    weights = model.parameters()
    model.update(nn.value_and_grad(model, loss_of)(model, *inputs)[1])
    found = to_state_dict(model, model.pytorch_names)
    model.update(weights)
    return found


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("segnet, odd", "quicknat, odd")])
def test_gradients_of_a_training_step_agree_with_pytorch(name):
    """With the statistics that were learnt, and the indices of PyTorch."""
    model, twin, x = pair(name, seed=1)
    scores, twin_indices = theirs(name, twin, x)
    target = np.random.default_rng(2).normal(size=first_to_last(scores).shape).astype(np.float32)
    (scores * last_to_first(target)).mean().backward()
    expected = {n: v.grad.numpy() for n, v in twin.named_parameters() if v.grad is not None}
    assert len(expected) > 20

    def loss_of(model, x):
        return (ours(name, model, x) * mx.array(target)).mean()

    with pooled_indices(feed=[first_to_last(i) for i in twin_indices]):
        found = gradients(model, loss_of, mx.array(x))
    worst = max(
        np.linalg.norm(found[key] - value) / np.linalg.norm(value)
        for key, value in expected.items()
        if np.linalg.norm(value) > 1e-6
    )
    print(f"{name}: gradients differ by up to {worst:.1e} of their norm")
    # An activation whose input rounding takes across zero changes the gradient a little.
    assert worst < 1e-2
