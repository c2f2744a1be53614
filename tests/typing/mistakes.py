"""Mistakes that a type checker must find: exactly the lines marked ``# wrong``."""

import mlx.core as mx

import mlx_unpool
from mlx_unpool import MaxPool2d, MaxUnpool2d

x = mx.zeros((1, 4, 4, 1))

mlx_unpool.max_pool2d(x, 2, return_indices=True, index_format="windw")  # wrong
mlx_unpool.max_pool2d(x, 2, data_format="NCHW")  # wrong
mlx_unpool.max_pool2d(x, 2, 2, 0, 1)  # wrong
mlx_unpool.max_unpool2d(x, x, 2, data_format="last")  # wrong
mlx_unpool.max_unpool2d((x, x), x, 2)  # wrong
MaxPool2d(2, index_format="windw")  # wrong
MaxPool2d("2")  # wrong
MaxPool2d(2, padding="SAME")  # wrong
mlx_unpool.check_indices(x, 4)  # wrong
print(MaxPool2d(2)(x).shapee)  # wrong
mlx_unpool.AdaptiveMaxPool2d(2, return_indices=1.5)  # wrong
MaxUnpool2d.from_pool(2)  # wrong
MaxUnpool2d(2)(x)  # wrong
MaxUnpool2d(2)((x, x))  # wrong
MaxUnpool2d(2)(x, None)  # wrong
MaxUnpool2d(2)(x, x, 4, mx.cpu)  # wrong
MaxUnpool2d(2, index_format="offset")  # wrong
MaxUnpool2d()  # wrong
mlx_unpool.max_unpool2d((x, x), 2)  # wrong
mlx_unpool.max_unpool2d(x, x, 2, index_format="windw")  # wrong
mlx_unpool.check_indices(x, (4, 4), 2, index_format="pytorch")  # wrong
MaxPool2d(2, 2, 0, 1, True)  # wrong
MaxPool2d(pool_size=2)  # wrong
MaxPool2d(2)(x, mx.cpu)  # wrong
mlx_unpool.AdaptiveMaxPool2d(4, True)  # wrong
mlx_unpool.FractionalMaxPool2d(2, 4)  # wrong
mlx_unpool.convert_indices(x, "pytorh", "flat", (4, 4))  # wrong
mlx_unpool.convert_indices(x, source="flat", target="NCHW", output_size=(4, 4))  # wrong
mlx_unpool.convert_indices(x, "flat", "onnx", (4, 4), target_data_format="first")  # wrong
mlx_unpool.check_indices(x, (4, 4), data_format="NCHW")  # wrong
mlx_unpool.use_backend("gpu")  # wrong


def pair() -> tuple[mx.array, mx.array]:
    return mlx_unpool.max_pool2d(x, 2, return_indices=True)  # wrong
