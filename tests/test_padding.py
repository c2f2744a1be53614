"""Padding that differs between the two sides of an axis or depends on the size. Generated cases have both."""

import json
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from errors import fails

import mlx_unpool
from mlx_unpool import max_pool1d, max_pool2d, max_unpool1d, max_unpool2d

NUMBERS = Path(__file__).parent / "support" / "same_padding_in_tensorflow.json"
X = mx.random.normal((2, 7, 8, 3), key=mx.random.key(0))
LINE = mx.array([3.0, 1, 2, 5, 4]).reshape(1, 5, 1)


def test_unpooling_with_same_needs_the_size_that_was_pooled():
    values, indices = max_pool2d(X, 3, 2, "same", return_indices=True)
    for size in ((7, 7), (7, 8), (8, 8), (8, 7)):
        assert max_unpool2d(values, indices, 3, 2, "same", output_size=size).shape[1:3] == size
    for size in ((6, 8), (9, 8), (7, 9), (7, 6)):
        unpool = lambda size=size: max_unpool2d(values, indices, 3, 2, "same", output_size=size)
        fails(unpool, ValueError, "max_unpool2d", "output_size", "'same'", "7 to 8, 7 to 8", str(size))
    unpool = lambda: max_unpool2d(values, indices, 3, 2, "same")
    fails(unpool, ValueError, "max_unpool2d", "output_size", "padding='same'", "output_size=x.shape")
    values, indices = max_pool1d(LINE, 4, 1, "same", return_indices=True)
    assert max_unpool1d(values, indices, 4, 1, "same").shape == LINE.shape
    wrong = lambda: mlx_unpool.check_indices(indices + 4, (5,), 4, 1, "same")
    fails(wrong, ValueError, "check_indices", "indices", "Inputs with W 5 to 5 have this pooled size.")


def test_same_padding_is_that_of_tensorflow():
    """The numbers in the file are ``argmax`` of this program, with the same ``numbers``::

    y = tf.nn.relu(tf.nn.conv2d(numbers(2, 7, 5, 2), numbers(3, 3, 2, 3), 1, "SAME"))
    y, argmax = tf.nn.max_pool_with_argmax(y, 2, 2, "SAME", include_batch_in_index=True)
    """
    numbers = lambda *shape: mx.array(np.sin(np.arange(np.prod(shape)) ** 2, dtype=np.float32)).reshape(shape)
    weights = mx.moveaxis(numbers(3, 3, 2, 3), -1, 0)
    features = nn.relu(mx.conv2d(numbers(2, 7, 5, 2), weights, padding=1))
    indices = max_pool2d(features, 2, padding="same", return_indices=True)[1]
    argmax = mlx_unpool.convert_indices(indices, "flat", "tensorflow_batch", features.shape)
    assert argmax.tolist() == json.loads(NUMBERS.read_text())
