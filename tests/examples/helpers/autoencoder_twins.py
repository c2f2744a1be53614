"""The autoencoders of the zoo in PyTorch, with the parameter names of their authors."""

import torch
from torch import nn
from torch.nn import functional


class InceptionTwin(nn.Module):
    def __init__(self, inputs, filters, sizes, narrow) -> None:
        super().__init__()
        self.bottleneck = nn.Conv1d(inputs, narrow, 1, bias=False) if inputs > 1 else nn.Identity()
        for number, size in enumerate(sizes, 1):
            layer = nn.Conv1d(narrow if inputs > 1 else 1, filters, size, padding=size // 2, bias=False)
            self.add_module(f"conv_from_bottleneck_{number}", layer)
        self.max_pool = nn.MaxPool1d(3, 1, 1, return_indices=True)
        self.conv_from_maxpool = nn.Conv1d(inputs, filters, 1, bias=False)
        self.batch_norm = nn.BatchNorm1d(4 * filters)

    def forward(self, x):
        narrow, (maxima, indices) = self.bottleneck(x), self.max_pool(x)
        parts = [self.get_submodule(f"conv_from_bottleneck_{n}")(narrow) for n in (1, 2, 3)]
        parts.append(self.conv_from_maxpool(maxima))
        return torch.relu(self.batch_norm(torch.cat(parts, 1))), indices


class TransposedTwin(nn.Module):
    def __init__(self, inputs, outputs, sizes, narrow) -> None:
        super().__init__()
        for n, size in enumerate(sizes, 1):
            layer = nn.ConvTranspose1d(inputs, narrow, size, padding=size // 2, bias=False)
            self.add_module(f"conv_to_bottleneck_{n}", layer)
        self.conv_to_maxpool = nn.Conv1d(inputs, outputs, 1, bias=False)
        self.bottleneck = nn.Conv1d(3 * narrow, outputs, 1, bias=False)
        self.batch_norm = nn.BatchNorm1d(outputs)

    def forward(self, x, indices):
        parts = [self.get_submodule(f"conv_to_bottleneck_{n}")(x) for n in (1, 2, 3)]
        narrow = self.bottleneck(torch.cat(parts, 1))
        return torch.relu(self.batch_norm(narrow + LastWins.apply(self.conv_to_maxpool(x), indices)))


class LastWins(torch.autograd.Function):
    """Unpooling where the last of equal indices wins and gets the gradient; PyTorch specifies neither."""

    @staticmethod
    def forward(ctx, x, indices):
        order = torch.arange(x.shape[-1]).expand_as(x)
        winner = torch.full_like(indices, -1).scatter_reduce(2, indices, order, "amax")
        ctx.save_for_backward(indices, winner.gather(2, indices) == order)
        return torch.where(winner >= 0, x.gather(2, winner.clamp(min=0)), 0)

    @staticmethod
    def backward(ctx, cotangent):
        indices, won = ctx.saved_tensors
        return torch.where(won, cotangent.gather(2, indices), 0), None


class InceptionAutoencoderTwin(nn.Module):
    def __init__(self, inputs=1, filters=32, sizes=(9, 19, 39), narrow=32) -> None:
        super().__init__()
        wide, self.encoder, self.decoder = 4 * filters, nn.Module(), nn.Module()
        for n, i, o in ((1, inputs, wide), (2, wide, wide), (3, wide, inputs)):
            self.encoder.add_module(f"inception_{n}", InceptionTwin(i, filters, sizes, narrow))
            self.decoder.add_module(f"inception_{n}", TransposedTwin(wide, o, sizes, narrow))
        self.encoder.residual = nn.Sequential(nn.Conv1d(inputs, wide, 1), nn.BatchNorm1d(wide))
        self.decoder.residual = nn.Sequential(nn.ConvTranspose1d(wide, inputs, 1), nn.BatchNorm1d(inputs))
        self.log_sigma = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        y, kept = x, []
        for number in (1, 2, 3):
            y, indices = self.encoder.get_submodule(f"inception_{number}")(y)
            kept.append(indices)
        code = y = torch.relu(y + self.encoder.residual(x))
        for number in (1, 2, 3):
            y = self.decoder.get_submodule(f"inception_{number}")(y, kept.pop())
        return torch.relu(y + self.decoder.residual(code))


class ConvAutoencoder3dTwin(nn.Module):
    """ClinicaDL's autoencoder: pads volumes at the front to even sizes, and crops after unpooling."""

    def __init__(self, inputs=1, channels=(8, 16, 32, 64, 128)) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Sequential(), nn.Sequential()
        stages = list(zip((inputs, *channels), channels))
        for i, o in stages:
            pool = nn.MaxPool3d(2, 2, return_indices=True)
            self.encoder.extend([nn.Conv3d(i, o, 3, padding=1), nn.BatchNorm3d(o), nn.ReLU(), pool])
        for i, o in reversed(stages):
            layers = nn.ConvTranspose3d(o, i, 3, padding=1), nn.BatchNorm3d(i), nn.ReLU()
            self.decoder.extend([nn.MaxUnpool3d(2, 2), *layers])

    def forward(self, x):
        kept = []
        for layer in (*self.encoder, *self.decoder):
            if isinstance(layer, nn.MaxPool3d):
                d, h, w = (size % 2 for size in x.shape[2:])
                x, indices = layer(functional.pad(x, (w, 0, h, 0, d, 0)))
                kept.append((indices, (d, h, w)))
            elif isinstance(layer, nn.MaxUnpool3d):
                indices, (d, h, w) = kept.pop()
                x = layer(x, indices)[:, :, d:, h:, w:]
            else:
                x = layer(x)
        return x
