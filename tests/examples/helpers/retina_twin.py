"""ReLayNet in PyTorch, with the parameter names of its authors."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A convolution of the transposed scan, as in the authors' code, and what follows it."""

    def __init__(self, inputs, outputs, of_picture):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, (3, 7), padding=(1, 3))
        self.batchnorm, self.prelu, self.of_picture = nn.BatchNorm2d(outputs), nn.PReLU(), of_picture

    def forward(self, x):
        x = self.conv(x.mT).mT
        if not self.of_picture:
            return self.prelu(self.batchnorm(x))
        weights = self.batchnorm.weight, self.batchnorm.bias
        parts = [functional.batch_norm(part, None, None, *weights, training=True) for part in x.split(1)]
        return self.prelu(torch.cat(parts))


class ReLayNetTwin(nn.Module):
    def __init__(self, filters=8, classes=9, statistics="picture"):
        super().__init__()
        for name in ("encode1", "encode2", "encode3", "bottleneck", "decode1", "decode2", "decode3"):
            inputs = 1 if name == "encode1" else 2 * filters if "decode" in name else filters
            self.add_module(name, Block(inputs, filters, statistics == "picture"))
        self.classifier = nn.ModuleDict({"conv": nn.Conv2d(filters, classes, 1)})
        self.pool, self.unpool = nn.MaxPool2d(2, 2, return_indices=True), nn.MaxUnpool2d(2, 2)

    def forward(self, x):
        stages = []
        for block in (self.encode1, self.encode2, self.encode3):
            skip = block(x)
            x, indices = self.pool(skip)
            stages.append((skip, indices))
        x = self.bottleneck(x)
        for block in (self.decode1, self.decode2, self.decode3):
            skip, indices = stages.pop()
            x = block(torch.cat([skip, self.unpool(x, indices)], dim=1))
        return self.classifier["conv"](x)
