"""ReLayNet in PyTorch, with the parameter names of its authors."""

import torch
from torch import nn
from torch.nn import functional

from helpers.brain_twins import Stages


class Block(nn.Module):
    """A convolution of the transposed scan, as in the authors' code, and what follows it."""

    def __init__(self, inputs, outputs, of_picture):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, (3, 7), padding=(1, 3))
        self.batchnorm, self.prelu = nn.BatchNorm2d(outputs), nn.PReLU()
        self.of_picture = of_picture

    def forward(self, x):
        x = self.conv(x.mT).mT
        if not self.of_picture:
            return self.prelu(self.batchnorm(x))
        weights = self.batchnorm.weight, self.batchnorm.bias
        parts = [
            functional.batch_norm(part, None, None, *weights, training=True) for part in x.split(1)
        ]
        return self.prelu(torch.cat(parts))


class ReLayNetTwin(Stages):
    def __init__(self, filters=8, classes=9, statistics="picture"):
        make = lambda inputs, first: Block(inputs, filters, statistics == "picture")
        super().__init__(make, ["decode1", "decode2", "decode3"], 1, filters, classes, combined=2)

    def combine(self, skip, x):
        return torch.cat([skip, x], dim=1)
