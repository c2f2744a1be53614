"""ReLayNet: statistics, files and the program."""

import hashlib

import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from helpers.programs import call
from helpers.small_models import small_model
from helpers.torch_files import save_checkpoint
from mlx.utils import tree_flatten
from mlx_unpool_zoo.published import PUBLISHED
from PIL import Image

from mlx_unpool.porting import to_state_dict

SCAN = np.random.default_rng(0).integers(0, 256, (24, 40), np.uint8)


def test_each_picture_has_its_own_statistics_and_no_array_changes(tmp_path):
    other, x = small_model("relaynet")
    model = zoo.ReLayNet(num_filters=4, statistics="picture").eval()
    model.update(other.parameters())
    x = mx.concatenate([x, 3 * x[:1] + 1])
    before = {name: np.array(value) for name, value in tree_flatten(model.parameters())}
    scores = model(x)
    assert mx.allclose(scores, mx.concatenate([model(part) for part in x.split(3)]), atol=1e-5)
    norm = model.encode1.batchnorm
    normal = (norm(model.encode1.conv(x)) - norm.bias) / norm.weight
    assert mx.allclose(normal.mean((1, 2)), mx.zeros((3, 4)), atol=1e-5)
    assert mx.allclose(normal.var((1, 2)), mx.ones((3, 4)), atol=1e-2)
    assert np.array_equal(
        model.predict(SCAN), np.array(model(model.preprocess(SCAN))[0].argmax(-1))
    )
    after = dict(tree_flatten(model.parameters()))
    assert all(np.array_equal(after[name], value) for name, value in before.items())
    model.save_pretrained(tmp_path)
    assert mx.array_equal(zoo.from_pretrained(tmp_path)(x), scores)
    stored = zoo.from_pretrained(tmp_path, statistics="stored")
    assert not mx.allclose(stored(x), scores, atol=0.1)
    stored.save_pretrained(tmp_path)
    again = zoo.from_pretrained(tmp_path)
    assert (again.config["statistics"], mx.array_equal(again(x), stored(x))) == ("stored", True)
    assert mx.array_equal(other(x), stored(x))  # the default
    again.train()(x)  # as mlx.nn.BatchNorm
    assert not mx.array_equal(
        again.encode1.batchnorm.running_mean, stored.encode1.batchnorm.running_mean
    )
    with pytest.raises(
        ValueError, match="'statistics': Input should be 'picture' or 'stored', but got 'x'"
    ):
        zoo.ReLayNet(statistics="x")
    with pytest.raises(ValueError, match="kernels must have odd sizes, but got 4 x 3"):
        zoo.ReLayNet(kernel_h=4)
    with pytest.raises(ValueError, match=r"multiples of 8, but got \(1, 8, 12, 1\)"):
        model(mx.zeros((1, 8, 12, 1)))


def test_the_program_says_what_a_scan_takes_and_for_what_it_is_not(tmp_path, monkeypatch):
    model, _ = small_model("relaynet")
    model.save_pretrained(tmp_path / "model")
    Image.fromarray(SCAN).save(tmp_path / "scan.png")
    monkeypatch.chdir(tmp_path)
    said = call("predict", "model", "scan.png").stdout.splitlines()
    assert said[0] == "Not for clinical use; one scan was compared."
    assert ("70 to 100 seconds" in said[1]) == (mx.default_device() == mx.cpu)
    with Image.open("runs/classes-scan.png") as labels:
        assert np.array_equal(labels, model.predict(SCAN))
    said = call("predict", "relaynet", "no.png", status=1).stderr  # before a download
    assert said == "There is no file no.png.\n"


def test_a_file_like_the_published_one_is_read_without_pytorch(tmp_path, monkeypatch, capsys):
    (expected, x), file = small_model("relaynet"), tmp_path / "written"
    save_checkpoint(file, to_state_dict(expected))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setitem(PUBLISHED, "relaynet", PUBLISHED["relaynet"]._replace(sha256=digest))
    file.rename(tmp_path / f"relaynet-{digest[:8]}.model")
    options = {"cache_dir": tmp_path, "local_files_only": True}
    assert mx.array_equal(zoo.from_pretrained("relaynet", **options)(x), expected(x))
    said = capsys.readouterr().err
    assert said.startswith(
        "relaynet: from https://github.com/ai-med/relaynet_pytorch, commit 40ae1aa, epoch"
    )
    assert said.endswith("/LICENSE). Not for clinical use; one scan was compared.\n")
    picture = zoo.from_pretrained("relaynet", statistics="picture", **options)
    assert not mx.allclose(picture(x), expected(x), atol=0.1)
