"""Port a SegNet from PyTorch to MLX: both networks, the weights, and a comparison of their results.

python examples/port_segnet.py      needs PyTorch: pip install torch
"""

import mlx.core as mx
import mlx.nn as nn
import torch
from torch.overrides import TorchFunctionMode

import mlx_unpool
from mlx_unpool.porting import compare_port, load_state_dict


# The original.
def torch_block(inputs, outputs):
    convolution = torch.nn.Conv2d(inputs, outputs, 3, padding=1)
    return torch.nn.Sequential(convolution, torch.nn.BatchNorm2d(outputs), torch.nn.ReLU())


class TorchSegNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.ModuleList([torch_block(3, 16), torch_block(16, 32)])
        self.pool = torch.nn.MaxPool2d(2, return_indices=True)
        self.unpool = torch.nn.MaxUnpool2d(2)
        last = torch.nn.Conv2d(16, 5, 3, padding=1)
        self.decoder = torch.nn.ModuleList([torch_block(32, 16), last])

    def forward(self, x):  # (N, 3, 45, 61)
        stack = []
        for layer in self.encoder:
            features = layer(x)  # (N, 16, 45, 61), then (N, 32, 22, 30)
            x, indices = self.pool(features)
            stack.append((indices, features.shape))
        for layer in self.decoder:
            indices, shape = stack.pop()
            x = layer(self.unpool(x, indices, output_size=shape))
        return x  # (N, 5, 45, 61)


# The port: the same layers with the same names, and arrays that are channels last.
def block(inputs, outputs):
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1)
    return nn.Sequential(convolution, nn.BatchNorm(outputs), nn.ReLU())


class SegNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = [block(3, 16), block(16, 32)]
        self.pool = mlx_unpool.MaxPool2d(2, return_indices=True)
        self.unpool = mlx_unpool.MaxUnpool2d.from_pool(self.pool)
        self.decoder = [block(32, 16), nn.Conv2d(16, 5, 3, padding=1)]

    def __call__(self, x):  # (N, 45, 61, 3)
        stack = []
        for layer in self.encoder:
            features = layer(x)  # (N, 45, 61, 16), then (N, 22, 30, 32)
            x, indices = self.pool(features)
            stack.append((indices, features.shape))
        for layer in self.decoder:
            indices, shape = stack.pop()
            x = layer(self.unpool(x, indices, output_size=shape))
        return x  # (N, 45, 61, 5)


# Load the weights.
original = TorchSegNet().eval()  # in practice with the weights of a file
port = SegNet().eval()  # BatchNorm uses its running statistics
loaded = load_state_dict(port, original.state_dict())
print(loaded)


# Run the original, and record the indices of its pools.
class Recorder(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.indices = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        if function.__name__ in [f"max_pool{n}d_with_indices" for n in (1, 2, 3)]:
            self.indices.append(channels_last(output[1]))
        return output


def channels_last(tensor):
    return tensor.detach().movedim(1, -1).numpy()


x = torch.rand(1, 3, 45, 61)
with Recorder() as recorder:
    scores = original(x)
scores.square().mean().backward()
gradients = {name: parameter.grad for name, parameter in original.named_parameters()}

# Compare the port with it. Without loss and gradients, only pools and scores are compared.
found = compare_port(
    port,
    [mx.array(channels_last(x))],
    channels_last(scores),
    recorder.indices,
    loss=lambda scores: mx.square(scores).mean(),
    gradients=gradients,
    loaded=loaded,
)
print(found)
assert found.gap < 1e-6
assert found.scores < 1e-5
assert max(found.gradients.values()) < 0.1
