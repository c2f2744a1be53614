"""MediaPipe's hair segmentation network in PyTorch. The names are those of the zoo."""

import torch
from torch import nn


class Doubling(nn.ConvTranspose2d):
    """TensorFlow's transposed convolution with stride 2 and the padding "same"."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int) -> None:
        super().__init__(inputs, outputs, kernel_size, stride=2)

    def forward(self, x):
        return super().forward(x)[..., : 2 * x.shape[-2], : 2 * x.shape[-1]]


def convolution(inputs: int, outputs: int, kernel_size: int, dilation: int = 1, groups: int = 1) -> nn.Module:
    options = {"dilation": dilation, "groups": groups, "padding": dilation * (kernel_size // 2)}
    return nn.Conv2d(inputs, outputs, kernel_size, **options)


class Block(nn.Module):
    """A bottleneck; ``change`` is "down", "up" or "" (the same size)."""

    def __init__(
        self, inputs: int, outputs: int, narrow: int, kind: str | int = "separable", change: str = ""
    ) -> None:
        super().__init__()
        n, layers = narrow, [nn.Conv2d(inputs, narrow, 1)]
        if change == "down":
            layers = [nn.Conv2d(inputs, narrow, 2, 2)]
            self.pool = nn.MaxPool2d(2, return_indices=True)
        layers.append(nn.PReLU(n))
        if change == "up":
            layers += [Doubling(n, n, 3), nn.PReLU(n)]
            self.unpool = nn.MaxUnpool2d(2)
        elif kind == "separable":
            layers += [convolution(n, n, 3, groups=n), nn.Conv2d(n, n, 1), nn.PReLU(n)]
            layers += [convolution(n, n, 3, groups=n), nn.PReLU(n)]
        elif kind == "large":
            layers += [convolution(n, n, 5, groups=n), nn.Conv2d(n, n, 1), nn.PReLU(n)]
        else:
            layers += [convolution(n, n, 3, kind), nn.PReLU(n)]
        self.branch = nn.Sequential(*layers, nn.Conv2d(n, outputs, 1))
        if inputs != outputs or change == "up":
            self.main = nn.Conv2d(inputs, outputs, 1)
        self.activation = nn.PReLU(outputs)

    def forward(self, x, indices=None):
        branch, main = self.branch(x), x
        if hasattr(self, "pool"):
            main, indices = self.pool(x)
        if hasattr(self, "main"):
            main = self.main(main)
        if hasattr(self, "unpool"):
            main = self.unpool(main, indices)
        out = self.activation(branch + main)
        return (out, indices) if hasattr(self, "pool") else out


class HairSegmenterTwin(nn.Module):
    """The network, with two classes."""

    def __init__(self) -> None:
        super().__init__()
        kinds = ["separable", 2, "large", 4, "separable", 8, "separable", 2, "large", 4, "separable", 8]
        self.stem = nn.Sequential(nn.Conv2d(4, 8, 2, 2), nn.PReLU(8), nn.Conv2d(8, 32, 2, 2), nn.PReLU(32))
        first = Block(32, 64, 16, change="down")
        self.stage1 = nn.ModuleList([first, Block(64, 64, 16), Block(64, 64, 16)])
        second = Block(64, 128, 32, change="down")
        self.stage2 = nn.ModuleList([second, *(Block(128, 128, 16) for _ in range(4))])
        third = Block(128, 128, 16, change="down")
        self.stage3 = nn.ModuleList([third, *(Block(128, 128, 8, kind) for kind in kinds)])
        self.stage4 = nn.ModuleList([Block(128, 128, 4, 1), Block(128, 128, 8, change="up")])
        self.stage5 = nn.ModuleList([Block(256, 128, 8, 1), Block(128, 64, 8, change="up")])
        up = Block(64, 32, 4, change="up")
        self.stage6 = nn.ModuleList([Block(128, 64, 4, 1), up, Block(32, 32, 4, 1)])
        self.head = nn.Sequential(Doubling(32, 8, 2), nn.PReLU(8), Doubling(8, 2, 2))

    def forward(self, x):
        x, kept = self.stem(x), []
        for stage in (self.stage1, self.stage2, self.stage3):
            x, indices = stage[0](x)
            kept.append((x, indices))
            for block in stage[1:]:
                x = block(x)
        x = self.stage4[1](self.stage4[0](x), kept[2][1])
        x = self.stage5[0](torch.cat([x, kept[1][0]], 1))
        x = self.stage6[0](torch.cat([self.stage5[1](x, kept[1][1]), kept[0][0]], 1))
        return self.head(self.stage6[2](self.stage6[1](x, kept[0][1])))
