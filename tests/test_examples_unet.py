"""The program that trains one U-Net with the max pooling of ``mlx.nn`` and with ours."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest
from unet_max_pool import UNet, discs

import mlx_unpool

PROGRAM = Path(__file__).parent.parent / "examples" / "unet_max_pool.py"


def test_both_reach_the_same_losses_and_leave_no_files(tmp_path):
    command = [sys.executable, str(PROGRAM), "--smoke"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    losses = re.findall(r"^ +\d+ +([\d.]+) +([\d.]+)$", said, re.MULTILINE)
    assert len(losses) == 4
    for theirs, ours in losses:
        assert float(ours) == pytest.approx(float(theirs), rel=1e-3)
    assert re.search(r"mlx\.nn [\d.]+ ms, mlx_unpool [\d.]+ ms\.\n$", said)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_network_is_the_same_after_its_pools_are_replaced(dims):
    model, x = UNet(dims, 2, 3, (4, 6, 8)), mx.random.normal((2, *[8] * dims, 2))
    expected = model(x)
    assert expected.shape == (2, *[8] * dims, 3)
    mlx_unpool.replace_max_pools(model)
    assert not isinstance(model.pool, getattr(nn, f"MaxPool{dims}d"))
    assert mx.array_equal(model(x), expected)


def test_pictures_are_brighter_inside_the_disc():
    images, classes = discs(16, 32)
    assert (images.shape, classes.shape) == ((16, 32, 32, 1), (16, 32, 32))
    assert 0.02 < classes.astype(mx.float32).mean() < 0.3
    inside = mx.where(classes == 1, images[..., 0], 0).sum() / classes.sum()
    assert inside.item() == pytest.approx(0.5, abs=0.05)
