"""The networks of FastSurfer and QuickNAT in PyTorch, with the parameter names of their authors."""

import torch
from torch import nn
from torch.nn import functional


class Competitive(nn.Module):
    """A block of FastSurfer with four convolutions, or with three, the last of size 1 (CerebNet)."""

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
        self.maxpool = nn.MaxPool2d(2, 2, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2, 2)

    def convolved(self, x, number):
        x = self.get_submodule(f"conv{number}")(x)
        return self.get_submodule(f"{self.norm}{number + 1}")(x)

    def forward(self, x):
        if self.start == "compete":
            first = torch.maximum(x, self.convolved(self.prelu(x), 0))
        elif self.start == "activate":
            first = self.convolved(self.prelu(x), 0)
        else:
            first = self.convolved(self.bn0(x), 0)
        best = torch.maximum(self.convolved(self.prelu(first), 1), first)
        if self.last == 3:
            best = torch.maximum(self.convolved(self.prelu(best), 2), best)
        return self.convolved(self.prelu(best), self.last)


class ConvOnly(nn.Module):
    """A classifier with a convolution named ``conv``."""

    def __init__(self, inputs, classes) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, classes, 1)

    def forward(self, x):
        return self.conv(x)


class FastSurferCNNTwin(nn.Module):
    """FastSurferCNN for ``planes`` slices."""

    def __init__(self, classes, planes=7, filters=64, kernel=5, count=4) -> None:
        super().__init__()
        self.encode1 = Competitive(planes, filters, kernel, "normalise", count=count)
        for name in ("encode2", "encode3", "encode4", "bottleneck"):
            self.add_module(name, Competitive(filters, filters, kernel, count=count))
        for name in ("decode4", "decode3", "decode2", "decode1"):
            self.add_module(name, Competitive(filters, filters, kernel, count=count))
        self.classifier = ConvOnly(filters, classes)

    def features(self, x):
        skips = []
        for number in range(1, 5):
            stage = self.get_submodule(f"encode{number}")
            skip = stage(x)
            x, indices = stage.maxpool(skip)
            skips.append((skip, indices))
        x = self.bottleneck(x)
        for number in (4, 3, 2, 1):
            stage = self.get_submodule(f"decode{number}")
            skip, indices = skips[number - 1]
            x = stage(torch.maximum(stage.unpool(x, indices), skip))
        return x

    def forward(self, x):
        return self.classifier(self.features(x))


class CerebNetTwin(FastSurferCNNTwin):
    """CerebNet: three convolutions in each block."""

    def __init__(self, classes=28, planes=7, filters=64, kernel=5) -> None:
        super().__init__(classes, planes, filters, kernel, count=3)


class FastSurferVINNTwin(FastSurferCNNTwin):
    """FastSurferVINN, which crops and pads at the right and at the bottom."""

    def __init__(self, classes, planes=7, filters=71, between=32, kernel=3, inner=(256, 256)):
        super().__init__(classes, between, filters, kernel)
        self.outp_block = Competitive(filters + between, filters, kernel, "activate", "gn")
        self.inner = inner
        self.build_input(planes, between, kernel)

    def build_input(self, planes, between, kernel):
        self.inp_block = Competitive(planes, between, kernel, "normalise", "gn")

    def forward(self, x, scale):
        return self.resized(self.inp_block(x), scale)

    def resized(self, skip, scale):
        # One factor for each image, or two: Python floats in lists, or a tensor.
        if not isinstance(scale, torch.Tensor):
            scales = [s if isinstance(s, list) else [s, s] for s in scale]
        else:
            scales = scale[:, None].expand(-1, 2) if scale.ndim == 1 else scale
        images, factors = zip(*(zoomed(image[None], s, self.inner) for image, s in zip(skip, scales)))
        inside = self.features(torch.cat(images))
        size = skip.shape[2:]
        back = [zoomed(image[None], inverse(factor), size)[0] for image, factor in zip(inside, factors)]
        return self.classifier(self.outp_block(torch.cat([torch.cat(back), skip], dim=1)))


class HypVINNTwin(FastSurferVINNTwin):
    """HypVINN: a first block for each of two modalities, and learnt weights of the two."""

    def __init__(self, classes=27, planes=14, filters=80, between=64, kernel=3, inner=(256, 256)):
        super().__init__(classes, planes, filters, between, kernel, inner)

    def build_input(self, planes, between, kernel):
        self.m1_inp_block = Competitive(planes // 2, between, kernel, "normalise", "gn")
        self.m2_inp_block = Competitive(planes // 2, between, kernel, "normalise", "gn")
        self.mod_weights = nn.Parameter(torch.tensor([0.9, 0.2]))

    def forward(self, x, scale, weight_factor=(0.5, 0.5)):
        one, two = x.tensor_split(2, dim=1)
        weights = torch.tensor(weight_factor)
        if 1 not in weights:
            weights = self.mod_weights.softmax(0)
        skip = weights[0] * self.m1_inp_block(one) + weights[1] * self.m2_inp_block(two)
        return self.resized(skip, scale)


def inverse(scale):
    """The inverse of the factors in a list or in a tensor."""
    return [1 / s for s in scale] if isinstance(scale, list) else torch.div(1, scale)


def zoomed(x, scale, target):
    """``x`` resampled to ``target`` positions, each ``scale`` positions wide, and the actual scale.

    The arithmetic is that of Python floats, or of tensors: it rounds to their type, and a number divided by a
    tensor is the number times the reciprocal of the tensor.
    """
    sizes, missing, made = [], [], []
    for axis in (0, 1):
        have, want = x.shape[axis + 2], int(target[axis] * scale[axis])
        if want > have:
            inner = int(have / scale[axis])
            sizes.append(inner)
            missing.append(target[axis] - inner)
            made.append(have / inner)
        else:
            x = x.narrow(axis + 2, 0, want)
            sizes.append(target[axis])
            missing.append(0)
            made.append(want / target[axis])
    x = functional.interpolate(x, size=tuple(sizes), mode="bilinear", align_corners=False)
    made = made if isinstance(scale, list) else torch.tensor(made, dtype=scale.dtype)
    return functional.pad(x, (0, missing[1], 0, missing[0])), made


class ChannelSqueeze(nn.Module):
    def __init__(self, channels) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(channels, channels // 2), nn.Linear(channels // 2, channels)

    def forward(self, x):
        weights = torch.sigmoid(self.fc2(torch.relu(self.fc1(x.flatten(2).mean(2)))))
        return x * weights[:, :, None, None]


class SpatialSqueeze(nn.Module):
    def __init__(self, channels) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 1, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.conv(x))


class BothSqueezes(nn.Module):
    def __init__(self, channels) -> None:
        super().__init__()
        self.cSE, self.sSE = ChannelSqueeze(channels), SpatialSqueeze(channels)

    def forward(self, x):
        return torch.max(self.cSE(x), self.sSE(x))


SQUEEZES = {"NONE": nn.Identity, "CSE": ChannelSqueeze, "SSE": SpatialSqueeze, "CSSE": BothSqueezes}


class Dense(nn.Module):
    """A block of QuickNAT. The bottleneck does not use its squeeze and excitation."""

    def __init__(self, inputs, filters, kernel, kind, drop_out=0.0) -> None:
        super().__init__()
        wide = (inputs, inputs + filters, inputs + 2 * filters)
        self.conv1 = nn.Conv2d(wide[0], filters, kernel, padding=kernel // 2)
        self.conv2 = nn.Conv2d(wide[1], filters, kernel, padding=kernel // 2)
        self.conv3 = nn.Conv2d(wide[2], filters, 1)
        self.batchnorm1, self.batchnorm2, self.batchnorm3 = (nn.BatchNorm2d(n) for n in wide)
        self.prelu = nn.PReLU()
        self.SELayer = SQUEEZES[kind](*([filters] if kind != "NONE" else []))
        self.drop_out = nn.Dropout2d(drop_out)
        self.maxpool = nn.MaxPool2d(2, 2, return_indices=True)
        self.unpool = nn.MaxUnpool2d(2, 2)

    def dense(self, x):
        one = self.conv1(self.prelu(self.batchnorm1(x)))
        two = self.conv2(self.prelu(self.batchnorm2(torch.cat([x, one], 1))))
        return self.conv3(self.prelu(self.batchnorm3(torch.cat([x, one, two], 1))))

    def forward(self, x):
        return self.drop_out(self.SELayer(self.dense(x)))


class QuickNATTwin(nn.Module):
    """QuickNAT."""

    def __init__(self, classes, kind="CSSE", planes=1, filters=64, kernel=5) -> None:
        super().__init__()
        self.encode1 = Dense(planes, filters, kernel, kind)
        for name in ("encode2", "encode3", "encode4", "bottleneck"):
            self.add_module(name, Dense(filters, filters, kernel, kind))
        for name in ("decode1", "decode2", "decode3", "decode4"):
            self.add_module(name, Dense(2 * filters, filters, kernel, kind))
        self.classifier = ConvOnly(filters, classes)

    def forward(self, x):
        skips = []
        for stage in (self.encode1, self.encode2, self.encode3, self.encode4):
            skip = stage(x)
            x, indices = stage.maxpool(skip)
            skips.append((skip, indices))
        x = self.bottleneck.dense(x)
        for stage in (self.decode4, self.decode1, self.decode2, self.decode3):
            skip, indices = skips.pop()
            x = stage(torch.cat([skip, stage.unpool(x, indices, skip.shape)], dim=1))
        return self.classifier(x)
