"""MediaPipe's hair segmentation network in PyTorch. The names are those of the zoo."""

import torch
from torch import nn


class Doubling(nn.ConvTranspose2d):
    """TensorFlow's transposed convolution with stride 2 and the padding "same"."""

    def forward(self, x):
        return super().forward(x)[..., : 2 * x.shape[-2], : 2 * x.shape[-1]]


def convolution(n: int, size: int = 1, dilation: int = 1, groups: int = 1) -> nn.Module:
    return nn.Conv2d(n, n, size, dilation=dilation, groups=groups, padding=dilation * (size // 2))


def middle(kind: str | int, n: int) -> list[nn.Module]:
    if kind == "separable":
        first = [convolution(n, 3, groups=n), convolution(n), nn.PReLU(n)]
        return [*first, convolution(n, 3, groups=n), nn.PReLU(n)]
    if kind == "5 x 5":
        return [convolution(n, 5, groups=n), convolution(n), nn.PReLU(n)]
    return [Doubling(n, n, 3, 2) if kind == "up" else convolution(n, 3, kind), nn.PReLU(n)]


class Block(nn.Module):
    """A bottleneck. ``size``: 2 to halve the size; the kind "up" doubles it."""

    def __init__(self, inputs: int, n: int, outputs: int, kind: str | int, size: int = 1) -> None:
        super().__init__()
        first, last = nn.Conv2d(inputs, n, size, size), nn.Conv2d(n, outputs, 1)
        self.branch = nn.Sequential(first, nn.PReLU(n), *middle(kind, n), last)
        if inputs != outputs or kind == "up":
            self.main = nn.Conv2d(inputs, outputs, 1)
        self.activation = nn.PReLU(outputs)
        if size == 2:
            self.pool = nn.MaxPool2d(2, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2)

    def forward(self, x, indices=None):
        down, given = hasattr(self, "pool"), indices
        main, indices = self.pool(x) if down else (x, indices)
        main = self.main(main) if hasattr(self, "main") else main
        main = main if given is None else self.unpool(main, given)
        out = self.activation(self.branch(x) + main)
        return (out, indices) if down else out


class HairSegmenterTwin(nn.Module):
    """The network, with two classes."""

    def __init__(self) -> None:
        super().__init__()
        context = ["separable", 2, "5 x 5", 4, "separable", 8]
        stages = [
            [(32, 16, 64, "separable", 2), *[(64, 16, 64, "separable")] * 2],
            [(64, 32, 128, "separable", 2), *[(128, 16, 128, "separable")] * 4],
            [(128, 16, 128, "separable", 2), *((128, 8, 128, kind) for kind in 2 * context)],
            [(128, 4, 128, 1), (128, 8, 128, "up")],
            [(256, 8, 128, 1), (128, 8, 64, "up")],
            [(128, 4, 64, 1), (64, 4, 32, "up"), (32, 4, 32, 1)],
        ]
        self.stem = nn.Sequential(nn.Conv2d(4, 8, 2, 2), nn.PReLU(8), nn.Conv2d(8, 32, 2, 2), nn.PReLU(32))
        made = nn.ModuleList(nn.ModuleList(Block(*block) for block in blocks) for blocks in stages)
        self.encoder, self.decoder = made[:3], made[3:]
        self.head = nn.Sequential(Doubling(32, 8, 2, 2), nn.PReLU(8), Doubling(8, 2, 2, 2))

    def forward(self, x):
        x, kept = self.stem(x), []
        for down, *blocks in self.encoder:
            x, indices = down(x)
            kept.append((x, indices))
            for block in blocks:
                x = block(x)
        (_, third), (second_x, second), (first_x, first) = kept[::-1]
        x = self.decoder[0][1](self.decoder[0][0](x), third)
        x = self.decoder[1][1](self.decoder[1][0](torch.cat([x, second_x], 1)), second)
        x = self.decoder[2][1](self.decoder[2][0](torch.cat([x, first_x], 1)), first)
        return self.head(self.decoder[2][2](x))
