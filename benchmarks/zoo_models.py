"""Compares the models of the zoo with PyTorch at their published sizes: results and times.

    PYTHONPATH=tests/support python benchmarks/zoo_models.py [MODEL ...]

Without arguments it runs all models, which takes a quarter of an hour.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
import torch
from autoencoder_twins import ConvAutoencoder3dTwin, InceptionAutoencoderTwin
from brain_twins import (
    CerebNetTwin,
    FastSurferCNNTwin,
    FastSurferVINNTwin,
    HypVINNTwin,
    QuickNATTwin,
)
from harness import timing
from mlx_unpool_zoo.near_ties import pooled_indices, share_of_flips
from pytorch_twins import ENetTwin, SegNetTwin, indices_of, randomise

# For each model: its PyTorch version as published, the shape of an input, and further inputs.
CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...], list[Any]]] = {
    "fastsurfer_cnn": (lambda: FastSurferCNNTwin(79), (1, 256, 256, 7), []),
    "fastsurfer_vinn": (lambda: FastSurferVINNTwin(79), (1, 320, 320, 7), [[1.25]]),
    "cerebnet": (CerebNetTwin, (1, 128, 128, 7), []),
    "hypvinn": (HypVINNTwin, (1, 320, 320, 14), [[1.25]]),
    "quicknat": (lambda: QuickNATTwin(33), (1, 256, 256, 1), []),
    "enet": (lambda: ENetTwin(12), (1, 360, 480, 3), []),
    "segnet": (lambda: SegNetTwin(12, (64, 128, 256, 512, 512)), (1, 360, 480, 3), []),
    "inception_autoencoder": (InceptionAutoencoderTwin, (8, 160, 1), []),
    "conv_autoencoder_3d": (ConvAutoencoder3dTwin, (1, 169, 208, 179, 1), []),
}


def first_to_last(x: torch.Tensor) -> np.ndarray:
    """A PyTorch tensor (N, C, ...) as a channels-last array."""
    return np.ascontiguousarray(np.moveaxis(x.detach().numpy(), 1, -1))


def scores_of(result: Any, indices: list[torch.Tensor]) -> tuple[Any, list[Any]]:
    """Scores and indices of a PyTorch model. ``indices`` is used if the model returns only scores."""
    if isinstance(result, dict):
        return result["scores"], [v for name, v in result.items() if name.startswith("indices")]
    return result if isinstance(result, tuple) else (result, indices)


def timed(run: Callable[[], Any], times: list[float]) -> Any:
    """The result of a call. Its time is appended to ``times``."""
    start = time.perf_counter()
    result = run()
    times.append(time.perf_counter() - start)
    return result


@torch.no_grad()
def measure(name: str) -> dict[str, Any]:
    """Differences and times of one model. Each framework runs only twice, as a pass can take a minute."""
    make, shape, more = CASES[name]
    twin = randomise(make(), 0).eval()
    model = zoo.from_pytorch(name, twin.state_dict())
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    ours_x, theirs_x = mx.array(x), torch.from_numpy(np.moveaxis(x, -1, 1).copy())
    times: dict[str, list[float]] = {"mlx": [], "torch": []}

    def ours() -> np.ndarray:
        return np.array(model(ours_x, *more))

    result = timed(lambda: indices_of(twin, theirs_x, *more), times["torch"])
    expected, theirs = scores_of(*result)
    expected, theirs = first_to_last(expected), [first_to_last(i) for i in theirs]
    with pooled_indices() as found:
        scores = timed(ours, times["mlx"])
    timed(lambda: twin(theirs_x, *more), times["torch"])
    with pooled_indices(feed=theirs):
        fed = timed(ours, times["mlx"])
    spread = np.ptp(expected)
    return {
        "model": name,
        "shape": list(shape),
        "parameters": sum(value.numel() for value in twin.parameters()),
        "indices": sum(i.size for i in theirs),
        "flips": share_of_flips(found, theirs),
        "difference": float(np.abs(scores - expected).max() / spread),
        "fed": float(np.abs(fed - expected).max() / spread),
        "same class": float((scores.argmax(-1) == expected.argmax(-1)).mean()),
        "seconds": {framework: min(passes) for framework, passes in times.items()},
    }


def main() -> None:
    """Prints the table of ZOO.md."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "models",
        nargs="*",
        default=list(CASES),
        metavar="MODEL",
        help="models of the zoo to run (default: all)",
    )
    arguments = parser.parse_args()
    for name in arguments.models:
        if name not in CASES:
            parser.error(f"unknown model {name}: choose from {', '.join(CASES)}")
    torch.set_num_threads(1)
    found = []
    for name in arguments.models:
        found.append(measure(name))
        print(f"{name}: done", file=sys.stderr, flush=True)
        timing.save("zoo_models", found)
    heads = ["model", "input", "indices", "flips", "difference", "fed", "MLX / PyTorch"]
    rows = [
        [
            run["model"],
            "x".join(map(str, run["shape"])),
            f"{run['indices']:,}",
            f"{run['flips']:.1e}",
            f"{run['difference']:.1e}",
            f"{run['fed']:.1e}",
            f"{timing.ratio(run['seconds'], 'mlx', 'torch'):.1f}",
        ]
        for run in found
    ]
    print(timing.table(heads, rows))


if __name__ == "__main__":
    main()
