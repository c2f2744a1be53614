"""Write same_padding_in_tensorflow.json: a network of tests/test_padding.py in TensorFlow.

python tests/support/same_padding_in_tensorflow.py
"""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf


def numbers(*shape: int) -> np.ndarray:
    """An array of fixed numbers; tests/test_padding.py has the same function."""
    return np.sin(np.arange(np.prod(shape)) ** 2).reshape(shape).astype(np.float32)


x = numbers(2, 7, 5, 2)
y = tf.nn.relu(tf.nn.conv2d(x, numbers(3, 3, 2, 3), 1, "SAME"))
size = y.shape
y, argmax = tf.nn.max_pool_with_argmax(y, 2, 2, "SAME", include_batch_in_index=True)
y = tf.nn.conv2d(y, numbers(3, 3, 3, 3), 1, "SAME")
flat = tf.scatter_nd(tf.reshape(argmax, (-1, 1)), tf.reshape(y, (-1,)), (np.prod(size),))
y = tf.nn.conv2d(tf.reshape(flat, size), numbers(3, 3, 3, 1), 1, "SAME")
result = {"tensorflow": tf.__version__, "argmax": argmax.numpy().tolist()}
result["y"] = np.round(y.numpy().astype(float), 6).tolist()
Path(__file__).with_suffix(".json").write_text(json.dumps(result) + "\n")
