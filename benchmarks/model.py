"""Compares a training step of a small SegNet with PyTorch, and measures which part of it is pooling.

python benchmarks/model.py
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import torch
from harness import timing
from mlx_unpool_zoo.segnet import SegNet

CLASSES, BATCH, SIZE = 11, 8, 32
CHANNELS, CONVOLUTIONS = (12, 24, 48), (1, 2, 2)


class TorchSegNet(torch.nn.Module):
    """The SegNet of ``mlx_unpool_zoo`` in PyTorch."""

    def __init__(self) -> None:
        super().__init__()

        def block(inputs: int, outputs: int, kernel: int) -> torch.nn.Sequential:
            convolution = torch.nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
            return torch.nn.Sequential(convolution, torch.nn.BatchNorm2d(outputs), torch.nn.ReLU())

        inputs, outputs = (3, *CHANNELS[:-1]), (CHANNELS[0], *CHANNELS[:-1])
        self.encoder = torch.nn.ModuleList(
            torch.nn.Sequential(block(i, o, 3), *(block(o, o, 3) for _ in range(count - 1)))
            for i, o, count in zip(inputs, CHANNELS, CONVOLUTIONS, strict=True)
        )
        self.decoder = torch.nn.ModuleList(
            block(i, o, 5) for i, o in zip(CHANNELS[::-1], outputs[::-1], strict=True)
        )
        self.pool = torch.nn.MaxPool2d(2, return_indices=True)
        self.unpool = torch.nn.MaxUnpool2d(2)
        self.classifier = torch.nn.Conv2d(CHANNELS[0], CLASSES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stages = []
        for stage in self.encoder:
            x = stage(x)
            size = x.shape
            x, indices = self.pool(x)
            stages.append((indices, size))
        for stage in self.decoder:
            indices, size = stages.pop()
            x = stage(self.unpool(x, indices, output_size=size[2:]))
        return self.classifier(x)


def pooling_alone(model: SegNet) -> Any:
    """A function that runs only the pools and unpools of a training step, with their derivatives."""
    sizes = [(BATCH, SIZE >> n, SIZE >> n, channels) for n, channels in enumerate(CHANNELS)]
    planes = [mx.random.normal(size) for size in sizes]
    mx.eval(planes)

    def total(planes: list[mx.array]) -> mx.array:
        return sum(
            (model.unpool(*model.pool(x), output_size=x.shape[1:3]) * x).sum() for x in planes
        )

    step = mx.grad(total)
    return lambda: mx.eval(step(planes))


def main() -> None:
    """Prints the table."""
    x = mx.random.normal((BATCH, SIZE, SIZE, 3))
    y = mx.random.randint(0, CLASSES, (BATCH, SIZE, SIZE))
    mx.eval(x, y)
    model = SegNet(CLASSES, CHANNELS, CONVOLUTIONS)
    optimizer = optim.AdamW(1e-3)
    step = nn.value_and_grad(
        model, lambda model, x, y: nn.losses.cross_entropy(model(x), y, reduction="mean")
    )

    def ours() -> None:
        loss, gradients = step(model, x, y)
        optimizer.update(model, gradients)
        mx.eval(loss, model.state, optimizer.state)

    torch.manual_seed(0)
    rival = TorchSegNet()
    torch_optimizer = torch.optim.AdamW(rival.parameters(), 1e-3)
    torch_x, torch_y = (
        torch.randn(BATCH, 3, SIZE, SIZE),
        torch.randint(0, CLASSES, (BATCH, SIZE, SIZE)),
    )

    def theirs() -> None:
        torch_optimizer.zero_grad()
        torch.nn.functional.cross_entropy(rival(torch_x), torch_y).backward()
        torch_optimizer.step()

    torch.set_num_threads(1)
    pooling = pooling_alone(model)
    times = timing.medians({"mlx": ours, "torch": theirs, "pooling": pooling}, turns=7, seconds=0.5)
    timing.save("model", [{"shape": [BATCH, SIZE, SIZE, 3], "seconds": times}])
    lines = [
        ["training step, MLX / PyTorch on 1 thread", timing.ratio(times, "mlx", "torch")],
        ["pooling and unpooling, fraction of the MLX step", timing.ratio(times, "pooling", "mlx")],
    ]
    print(timing.table(["measurement", "ratio"], lines))


if __name__ == "__main__":
    main()
