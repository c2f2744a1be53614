"""The networks of FastSurfer and QuickNAT in PyTorch, with the parameter names of their authors."""

from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional


class Stages(nn.Module):
    """Pools with indices, and as many unpools.

    The subclasses differ in their blocks and combinations.
    """

    def __init__(self, make, decoders, planes, filters, classes, combined) -> None:
        super().__init__()
        encoders = [f"encode{number + 1}" for number in range(len(decoders))]
        for number, name in enumerate([*encoders, "bottleneck"]):
            self.add_module(name, make(filters if number else planes, number == 0))
        for name in decoders:
            self.add_module(name, make(combined * filters, False))
        self.classifier = nn.Sequential(OrderedDict(conv=nn.Conv2d(filters, classes, 1)))
        self.encoders, self.decoders = encoders, decoders
        self.pool, self.unpool = nn.MaxPool2d(2, 2, return_indices=True), nn.MaxUnpool2d(2, 2)

    def features(self, x):
        skips = []
        for name in self.encoders:
            skip = self.get_submodule(name)(x)
            x, indices = self.pool(skip)
            skips.append((skip, indices))
        x = getattr(self.bottleneck, "dense", self.bottleneck)(x)
        for name in self.decoders:
            skip, indices = skips.pop()
            x = self.get_submodule(name)(self.combine(skip, self.unpool(x, indices, skip.shape)))
        return x

    def forward(self, x):
        return self.classifier(self.features(x))


class Competitive(nn.Module):
    """A block of FastSurfer with four convolutions, or three, the last of size 1 (CerebNet)."""

    def __init__(self, inputs, filters, kernel, start="compete", norm="bn", count=4) -> None:
        super().__init__()
        self.start, self.norm, self.last = start, norm, count - 1
        if start == "normalise":
            self.bn0 = nn.BatchNorm2d(inputs)
        for number in range(count):
            channels = filters if number else inputs
            size = 1 if number == 2 and count == 3 else kernel
            self.add_module(f"conv{number}", nn.Conv2d(channels, filters, size, padding=size // 2))
            self.add_module(f"{norm}{number + 1}", nn.BatchNorm2d(filters))
        self.prelu = nn.PReLU()

    def forward(self, x):
        best, x = x, self.bn0(x) if self.start == "normalise" else self.prelu(x)
        for number in range(self.last + 1):
            x = self.get_submodule(f"conv{number}")(x)
            x = self.get_submodule(f"{self.norm}{number + 1}")(x)
            if number < self.last:
                best = torch.maximum(x, best) if number or self.start == "compete" else x
                x = self.prelu(best)
        return x


class FastSurferCNNTwin(Stages):
    """FastSurferCNN, or with ``count=3`` CerebNet."""

    def __init__(self, classes, planes=7, filters=64, kernel=5, count=4) -> None:
        start = lambda first: "normalise" if first else "compete"
        make = lambda inputs, first: Competitive(inputs, filters, kernel, start(first), count=count)
        super().__init__(
            make, [f"decode{n}" for n in (4, 3, 2, 1)], planes, filters, classes, combined=1
        )

    def combine(self, skip, x):
        return torch.maximum(x, skip)


class FastSurferVINNTwin(FastSurferCNNTwin):
    """FastSurferVINN, which crops and pads at the right and at the bottom."""

    inputs = ("inp_block",)  # a first block for each modality

    def __init__(self, classes, planes=7, filters=71, between=32, kernel=3, inner=(256, 256)):
        super().__init__(classes, between, filters, kernel)
        self.outp_block = Competitive(filters + between, filters, kernel, "activate", "gn")
        self.inner = inner
        for name in self.inputs:
            self.add_module(
                name, Competitive(planes // len(self.inputs), between, kernel, "normalise", "gn")
            )

    def forward(self, x, scale):
        return self.resized(self.inp_block(x), scale)

    def resized(self, skip, scale):
        # One factor for each image, or two: Python floats in lists, or a tensor.
        if not isinstance(scale, torch.Tensor):
            scales = [s if isinstance(s, list) else [s, s] for s in scale]
        else:
            scales = scale[:, None].expand(-1, 2) if scale.ndim == 1 else scale
        images, factors = zip(
            *(zoomed(image[None], s, self.inner) for image, s in zip(skip, scales))
        )
        inside, size = self.features(torch.cat(images)), skip.shape[2:]
        inverse = [
            [1 / f for f in pair] if isinstance(pair, list) else 1 / pair for pair in factors
        ]
        back = [zoomed(image[None], factor, size)[0] for image, factor in zip(inside, inverse)]
        return self.classifier(self.outp_block(torch.cat([torch.cat(back), skip], dim=1)))


class HypVINNTwin(FastSurferVINNTwin):
    """HypVINN, which also learns the weights of the two modalities."""

    inputs = ("m1_inp_block", "m2_inp_block")

    def __init__(self, *args, **options):
        super().__init__(*args, planes=14, **options)
        self.mod_weights = nn.Parameter(torch.tensor([0.9, 0.2]))

    def forward(self, x, scale, weight_factor=(0.5, 0.5)):
        weights = torch.tensor(weight_factor)
        weights = weights if 1 in weights else self.mod_weights.softmax(0)
        blocks = self.m1_inp_block, self.m2_inp_block
        parts = [
            w * block(half) for w, block, half in zip(weights, blocks, x.tensor_split(2, dim=1))
        ]
        return self.resized(parts[0] + parts[1], scale)


def zoomed(x, scale, target):
    """``x`` resampled to ``target`` positions, each ``scale`` wide, and the actual scale.

    Both have the type of ``x``.
    """
    sizes, missing, made = [], [], []
    for axis in (0, 1):
        have, want = x.shape[axis + 2], int(target[axis] * scale[axis])
        if want > have:
            sizes.append(int(have / scale[axis]))
        else:
            x, have = x.narrow(axis + 2, 0, want), want
            sizes.append(target[axis])
        made.append(have / sizes[-1])
        missing.append(target[axis] - sizes[-1])
    x = functional.interpolate(x, size=tuple(sizes), mode="bilinear", align_corners=False)
    made = made if isinstance(scale, list) else torch.tensor(made, dtype=scale.dtype)
    return functional.pad(x, (0, missing[1], 0, missing[0])), made


class Squeeze(nn.Module):
    """Excitation of channels (CSE), of positions (SSE), or the maximum of both."""

    def __init__(self, channels, kind) -> None:
        super().__init__()
        self.kind = kind
        if kind == "CSE":
            self.fc1 = nn.Linear(channels, channels // 2)
            self.fc2 = nn.Linear(channels // 2, channels)
        elif kind == "SSE":
            self.conv = nn.Conv2d(channels, 1, 1)
        elif kind == "CSSE":
            self.cSE, self.sSE = Squeeze(channels, "CSE"), Squeeze(channels, "SSE")

    def forward(self, x):
        if self.kind == "CSE":
            weights = torch.sigmoid(self.fc2(torch.relu(self.fc1(x.flatten(2).mean(2)))))
            return x * weights[:, :, None, None]
        if self.kind == "SSE":
            return x * torch.sigmoid(self.conv(x))
        return torch.max(self.cSE(x), self.sSE(x)) if self.kind == "CSSE" else x


class Dense(nn.Module):
    """A block of QuickNAT. The bottleneck does not use its squeeze and excitation."""

    def __init__(self, inputs, filters, kernel, kind) -> None:
        super().__init__()
        wide = (inputs, inputs + filters, inputs + 2 * filters)
        self.conv1, self.conv2 = (
            nn.Conv2d(n, filters, kernel, padding=kernel // 2) for n in wide[:2]
        )
        self.conv3 = nn.Conv2d(wide[2], filters, 1)
        self.batchnorm1, self.batchnorm2, self.batchnorm3 = (nn.BatchNorm2d(n) for n in wide)
        self.prelu, self.SELayer = nn.PReLU(), Squeeze(filters, kind)

    def dense(self, x):
        one = self.conv1(self.prelu(self.batchnorm1(x)))
        two = self.conv2(self.prelu(self.batchnorm2(torch.cat([x, one], 1))))
        return self.conv3(self.prelu(self.batchnorm3(torch.cat([x, one, two], 1))))

    def forward(self, x):
        return self.SELayer(self.dense(x))


class QuickNATTwin(Stages):
    def __init__(self, classes, kind="CSSE", planes=1, filters=64, kernel=5) -> None:
        make = lambda inputs, first: Dense(inputs, filters, kernel, kind)
        super().__init__(
            make, [f"decode{n}" for n in (4, 1, 2, 3)], planes, filters, classes, combined=2
        )

    def combine(self, skip, x):
        return torch.cat([skip, x], dim=1)
