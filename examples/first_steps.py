"""Max pooling with indices, and unpooling with them: a first example.

python examples/first_steps.py
"""

import mlx.core as mx
import mlx.nn as nn

from mlx_unpool import MaxPool2d, MaxUnpool2d

pool = MaxPool2d(2, return_indices=True)
unpool = MaxUnpool2d.from_pool(pool)

# Arrays are channels last, as in mlx.nn: a batch of one image of 4 x 4 with one channel.
x = mx.array([[3, 1, 0, 2], [0, 5, 7, 1], [4, 2, 1, 0], [1, 6, 3, 8]], mx.float32)[None, ..., None]
values, indices = pool(x)
print("image\n", x[0, ..., 0], sep="")
print("maximum of each 2 x 2 window\n", values[0, ..., 0], sep="")
print("its index: row * 4 + column\n", indices[0, ..., 0], sep="")
full = unpool(values, indices, output_size=x.shape)
print("unpooled: each maximum at its index, 0 elsewhere\n", full[0, ..., 0], sep="")

# Between pooling and unpooling, a network works at half the size. Both are differentiable.
convolution = nn.Conv2d(1, 1, 3, padding=1)
loss, gradients = nn.value_and_grad(
    convolution, lambda layer: unpool(layer(values), indices, output_size=x.shape).square().mean()
)(convolution)
print(f"loss {loss.item():.3f}, gradient of the bias {gradients['bias'].item():+.3f}")
