"""What ``benchmarks/mlx_nn.py`` counts: bytes of MLX's graph, and of the kernels."""

from __future__ import annotations

import mlx.core as mx
import mlx_nn
import pytest


def test_views_count_as_nothing_and_their_readers_read_the_array_under_them():
    x, row = mx.zeros((4, 6)), mx.zeros((6,))
    with mx.stream(mx.cpu):
        assert mlx_nn.graph_bytes(lambda x: mx.negative(x), x) == (192, 192)
        assert mlx_nn.graph_bytes(lambda x: mx.negative(x.T.reshape(2, 12)), x) == (192, 192)
        assert mlx_nn.graph_bytes(lambda x, y: x * y, x, row) == (216, 216)
        windows = lambda x: mx.negative(mx.as_strided(x, (4, 3), (1, 1)))  # noqa: E731
        assert mlx_nn.graph_bytes(windows, row) == (24 + 48, 48 + 48)


@pytest.mark.parametrize("name", ["2x2/2", "3x3/2", "1-D 3/2", "2x2x2/2"])
def test_kernels_read_and_write_each_byte_once_and_mlx_nn_at_least_twice_as_many(name):
    (case,) = (case for case in mlx_nn.CASES if case.name == name)
    case = case._replace(shape=(1, *(28,) * (len(case.shape) - 2), 16))
    with mx.stream(mx.cpu):
        figures = mlx_nn.counted(case)["bytes"]
        pooled = case.pools()["ours"](mx.zeros(case.shape))
    least = 2 * (4 * mx.zeros(case.shape).size + pooled.nbytes)
    indices = figures["ours"][0] - least
    assert indices == 2 * pooled.size  # one byte per pooled value, written once and read once
    for theirs, ours in zip(figures["mlx.nn"], figures["ours"]):
        assert theirs > 2 * ours
