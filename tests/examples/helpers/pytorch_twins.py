"""SegNet and ENet in PyTorch, and what all comparisons with PyTorch share."""

from collections import OrderedDict

import numpy as np
import torch
from torch import nn
from torch.nn import functional


def layer(name: str, dims: int) -> type[nn.Module]:
    """``nn.Conv2d`` for the name "Conv" and two dimensions."""
    return getattr(nn, f"{name}{dims}d")


def block(inputs: int, outputs: int, dims: int) -> nn.Sequential:
    conv, norm = layer("Conv", dims), layer("BatchNorm", dims)
    layers = {"conv": conv(inputs, outputs, 3, padding=1), "norm": norm(outputs)}
    return nn.Sequential(OrderedDict(layers, relu=nn.ReLU()))


class SegNetTwin(nn.Module):
    """SegNet with the encoder of VGG-16."""

    def __init__(self, classes: int, channels: tuple[int, ...], dims: int = 2) -> None:
        super().__init__()
        self.encoder, decoder = nn.ModuleList(), []
        inputs, outputs = (3, *channels), (channels[0], *channels)
        for i, o, count in zip(inputs, channels, (2, 2, 3, 3, 3)):
            others = (block(o, o, dims) for _ in range(count - 1))
            self.encoder.append(nn.Sequential(block(i, o, dims), *others))
        for i, o, count in zip(channels, outputs, (1, 2, 3, 3, 3)):
            decoder.append(
                nn.Sequential(*(block(i, i, dims) for _ in range(count - 1)), block(i, o, dims))
            )
        self.decoder = nn.ModuleList(decoder[::-1])
        self.classifier = layer("Conv", dims)(channels[0], classes, 3, padding=1)
        self.pool = layer("MaxPool", dims)(2, return_indices=True)
        self.unpool = layer("MaxUnpool", dims)(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stages = []
        for stage in self.encoder:
            features = stage(x)
            x, indices = self.pool(features)
            stages.append((indices, features.shape))
        for stage in self.decoder:
            x = stage(self.unpool(x, *stages.pop()))
        return self.classifier(x)


class Bottleneck(nn.Module):
    """A bottleneck of ENet of any kind, with the parameter names of ntkhoa95/ENet_PyTorch."""

    def __init__(self, inputs: int, outputs: int, kind: str = "plain", dilation: int = 1) -> None:
        super().__init__()
        narrow, self.kind, self.wider = inputs // 4, kind, outputs - inputs
        self.activation = self.activation1 = self.activation2 = self.activation3 = nn.PReLU()
        conv, name = (nn.ConvTranspose2d, "convt") if kind == "up" else (nn.Conv2d, "conv")
        first, last = conv(inputs, narrow, 1, bias=False), conv(narrow, outputs, 1, bias=False)
        if kind == "up":
            self.main_conv = nn.Conv2d(inputs, outputs, 1)
            middle = {"convt2": nn.ConvTranspose2d(narrow, narrow, 3, 2, 1, 1, bias=False)}
        elif kind == "asymmetric":
            wide = nn.Conv2d(narrow, narrow, (1, 5), padding=(0, 2), bias=False)
            middle = {
                "conv21": wide,
                "conv22": nn.Conv2d(narrow, narrow, (5, 1), padding=(2, 0), bias=False),
            }
        else:
            stride = 2 if kind == "down" else 1
            middle = {
                "conv2": nn.Conv2d(narrow, narrow, 3, stride, padding=dilation, dilation=dilation)
            }
        self.convolutions = {f"{name}1": first, **middle, f"{name}3": last}
        for label, convolution in self.convolutions.items():
            self.add_module(label, convolution)
        self.norm1, self.norm2 = nn.BatchNorm2d(narrow), nn.BatchNorm2d(narrow)
        self.norm3 = nn.BatchNorm2d(outputs)
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x, indices=None):
        first, *middle, last = self.convolutions.values()
        act = self.activation
        y = act(self.norm1(first(x)))
        y = self.norm3(last(act(self.norm2(nn.Sequential(*middle)(y)))))
        if self.kind == "up":
            return act(y + self.unpool(self.main_conv(x), indices, y.shape))
        if self.kind != "down":
            return act(y + x)
        main, indices = self.pool(x)
        return act(y + functional.pad(main, (0, 0, 0, 0, 0, self.wider))), indices


class ENetTwin(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        first = {"conv": nn.Conv2d(3, 13, 3, stride=2, padding=1), "norm": nn.BatchNorm2d(13)}
        self.initial = nn.ModuleDict(first | {"activation": nn.PReLU(16)})
        self.b10 = Bottleneck(16, 64, "down")
        for number in range(1, 5):
            self.add_module(f"b1{number}", Bottleneck(64, 64))
        self.b20 = Bottleneck(64, 128, "down")
        kinds = [("plain", 1), ("plain", 2), ("asymmetric", 1), ("plain", 4)]
        kinds += [("plain", 1), ("plain", 8), ("asymmetric", 1), ("plain", 16)]
        for stage in (2, 3):
            for number, kind in enumerate(kinds, start=1):
                self.add_module(f"b{stage}{number}", Bottleneck(128, 128, *kind))
        self.b40 = Bottleneck(128, 64, "up")
        self.b41, self.b42 = Bottleneck(64, 64), Bottleneck(64, 64)
        self.b50, self.b51 = Bottleneck(64, 16, "up"), Bottleneck(16, 16)
        self.fullconv = nn.ConvTranspose2d(16, classes, 3, 2, 1, 1, bias=False)

    def forward(self, x):
        conv, norm, activation = self.initial.values()
        x, first = self.b10(
            activation(torch.cat([norm(conv(x)), functional.max_pool2d(x, 2)], dim=1))
        )
        stage = lambda n, count: nn.Sequential(
            *(self.get_submodule(f"b{n}{i}") for i in range(1, count + 1))
        )
        x, second = self.b20(stage(1, 4)(x))
        x = stage(3, 8)(stage(2, 8)(x))
        x = self.b42(self.b41(self.b40(x, second)))
        x = self.b51(self.b50(x, first))
        return self.fullconv(x)


def randomise(model: nn.Module, seed: int) -> nn.Module:
    """Draw all weights, statistics and slopes again, so that activations stay in a normal range."""
    torch.manual_seed(seed)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.2)
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
        elif isinstance(module, nn.modules.conv._ConvNd):
            nn.init.kaiming_normal_(module.weight)
        elif isinstance(module, nn.PReLU):
            nn.init.uniform_(module.weight, 0.1, 0.4)
    return model


def indices_of(twin: nn.Module, *inputs: torch.Tensor) -> tuple[torch.Tensor, list[np.ndarray]]:
    """The output of a twin and the indices from its pooling layers, channels last, in order."""
    indices: list[np.ndarray] = []
    hook = lambda pool, inputs, result: indices.append(first_to_last(result[1]))
    pools = [layer for layer in twin.modules() if getattr(layer, "return_indices", False)]
    handles = [pool.register_forward_hook(hook) for pool in pools]
    scores = twin(*inputs)
    for handle in handles:
        handle.remove()
    return scores, indices


def first_to_last(x: torch.Tensor) -> np.ndarray:
    """A PyTorch array (N, C, ...) with channels last, as in MLX."""
    return np.ascontiguousarray(np.moveaxis(x.detach().numpy(), 1, -1))


def last_to_first(x: np.ndarray) -> torch.Tensor:
    """An array (N, ..., C) with channels first, as in PyTorch."""
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, -1, 1)))
