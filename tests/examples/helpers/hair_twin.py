"""MediaPipe's hair segmentation network in PyTorch. The names are those of the zoo."""

import torch
from torch import nn


class Doubling(nn.ConvTranspose2d):
    def forward(self, x):  # TensorFlow's padding "same"
        return super().forward(x)[..., : 2 * x.shape[-2], : 2 * x.shape[-1]]


def middle(kind: str | int, n: int) -> list[nn.Module]:
    """The layers between the first and the last of a branch; a number is a dilation."""
    conv = lambda size, d=1, groups=1: nn.Conv2d(n, n, size, 1, d * (size // 2), d, groups)
    if kind == "separable":
        return [conv(3, groups=n), conv(1), nn.PReLU(n), conv(3, groups=n), nn.PReLU(n)]
    if kind == "5 x 5":
        return [conv(5, groups=n), conv(1), nn.PReLU(n)]
    return [Doubling(n, n, 3, 2) if kind == "up" else conv(3, kind), nn.PReLU(n)]


class Block(nn.Module):
    """A bottleneck. ``size``: 2 to halve the size; the kind "up" doubles it."""

    def __init__(self, inputs: int, n: int, outputs: int, kind: str | int, size: int = 1) -> None:
        super().__init__()
        first, last = nn.Conv2d(inputs, n, size, size), nn.Conv2d(n, outputs, 1)
        self.branch = nn.Sequential(first, nn.PReLU(n), *middle(kind, n), last)
        self.main = (
            nn.Identity() if inputs == outputs and kind != "up" else nn.Conv2d(inputs, outputs, 1)
        )
        self.activation, self.down = nn.PReLU(outputs), size == 2
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x, given=None):
        main, indices = self.pool(x) if self.down else (x, None)
        main = self.main(main) if given is None else self.unpool(self.main(main), given)
        out = self.activation(self.branch(x) + main)
        return (out, indices) if self.down else out


class HairSegmenterTwin(nn.Module):
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
        self.stem = nn.Sequential(
            nn.Conv2d(4, 8, 2, 2), nn.PReLU(8), nn.Conv2d(8, 32, 2, 2), nn.PReLU(32)
        )
        made = nn.ModuleList(nn.ModuleList(Block(*block) for block in blocks) for blocks in stages)
        self.encoder, self.decoder = made[:3], made[3:]
        self.head = nn.Sequential(Doubling(32, 8, 2, 2), nn.PReLU(8), Doubling(8, 2, 2, 2))

    def forward(self, x):
        x, kept = self.stem(x), []
        for down, *blocks in self.encoder:
            x, indices = down(x)
            kept.append((x, indices))
            x = nn.Sequential(*blocks)(x)
        for number, (first, up, *rest) in enumerate(self.decoder):
            features, indices = kept.pop()
            x = up(first(torch.cat([x, features], 1) if number else x), indices)
            x = nn.Sequential(*rest)(x)
        return self.head(x)
