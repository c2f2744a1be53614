"""A network of a user, in MLX and in PyTorch."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn


class Autoencoder(nn.Module):
    """A typical network: layers in ``nn.Sequential``, and ``Linear`` before and after a feature map."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm(4), nn.PReLU())
        self.fc = nn.Linear(4 * 5 * 6, 8)
        self.back = nn.Linear(8, 4 * 5 * 6)
        self.decoder = nn.ConvTranspose2d(4, 1, 3)

    def __call__(self, x: mx.array) -> mx.array:
        x = self.encoder(x)
        y = self.back(self.fc(x.flatten(1)))
        return self.decoder(y.reshape(x.shape))


SHAPE = (4, 5, 6)  # of the feature map in PyTorch: channels, height, width


def autoencoder_twin() -> Any:
    """The same network in PyTorch, with random statistics."""
    import torch
    from torch import nn as tn

    class Twin(tn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = tn.Sequential(tn.Conv2d(1, 4, 3), tn.BatchNorm2d(4), tn.PReLU())
            self.fc, self.back = tn.Linear(4 * 5 * 6, 8), tn.Linear(8, 4 * 5 * 6)
            self.decoder = tn.ConvTranspose2d(4, 1, 3)

        def forward(self, x: Any) -> Any:
            x = self.encoder(x)
            return self.decoder(self.back(self.fc(x.flatten(1))).unflatten(1, SHAPE))

    torch.manual_seed(0)
    twin = Twin().eval()
    twin.encoder[1].running_mean.uniform_(-0.5, 0.5)
    twin.encoder[1].running_var.uniform_(0.5, 1.5)
    return twin
