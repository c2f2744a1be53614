"""The networks of the examples against the same networks in PyTorch."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_unpool_zoo.enet import ENet
from mlx_unpool_zoo.near_ties import pooled_indices
from mlx_unpool_zoo.pytorch import convert_state_dict, read_state, to_state_dict
from mlx_unpool_zoo.segnet import segnet_vgg16

torch = pytest.importorskip("torch")

from pytorch_twins import ENetTwin, SegNetTwin, randomise  # noqa: E402

CHANNELS = (64, 128, 256, 512, 512)


def segnet_names(name: str) -> tuple[str, ...]:
    return (name.replace(".layers.", "."),)


def last_to_first(x: mx.array) -> np.ndarray:
    """A copy of an array (N, H, W, C) as PyTorch has it."""
    return np.ascontiguousarray(np.moveaxis(np.array(x), -1, 1))


def pair_of_segnets(seed: int, width: float = 1 / 8):
    twin = randomise(SegNetTwin(12, tuple(int(width * n) for n in CHANNELS)), seed)
    model = segnet_vgg16(12, width)
    state = {name: value.numpy() for name, value in twin.state_dict().items()}
    model.load_weights(list(convert_state_dict(model, state, segnet_names).items()))
    return model, twin


def first_to_last(x) -> mx.array:
    """An array of PyTorch (N, C, H, W) as MLX has it."""
    return mx.array(np.moveaxis(x.detach().numpy(), 1, -1))


def layers_of(model: nn.Module, inputs: dict) -> dict[str, mx.array]:
    """What every layer gives for what the twin's layers gave before it, by the names of the twin."""
    given = {name: first_to_last(value) for name, value in inputs.items()}
    noted, stages = {}, []
    before = "picture"
    for number, stage in enumerate(model.encoder):
        for layer, convolve in enumerate(stage.layers):
            noted[name := f"encoder {number}.{layer}"] = convolve(given[before])
            before = name
        values, indices = model.pool(given[before])
        noted |= {f"pool {number}": values, f"indices {number}": indices}
        stages.append((given[f"indices {number}"], given[before].shape))
        before = f"pool {number}"
    for number, stage in enumerate(model.decoder):
        noted[f"unpool {number}"] = model.up(given[before], *stages.pop())
        before = f"unpool {number}"
        for layer, convolve in enumerate(stage.layers):
            noted[name := f"decoder {number}.{layer}"] = convolve(given[before])
            before = name
    return noted | {"scores": model.classifier(given[before])}


@pytest.mark.parametrize(
    ("size", "width"), [((64, 96), 1 / 8), ((77, 53), 1 / 8), ((45, 64), 1 / 8), ((64, 45), 1)]
)
def test_segnet_agrees_with_pytorch_layer_by_layer(size, width):
    model, twin = pair_of_segnets(0, width)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, *size)).astype(np.float32))
    with torch.no_grad():
        expected = twin.eval()(x)
    model.eval()
    found = layers_of(model, {"picture": x} | expected)
    assert list(found) == list(expected)
    assert sum(name.startswith(("encoder", "decoder")) for name in found) == 25
    for name, value in expected.items():
        if name.startswith(("pool", "indices", "unpool")):
            assert np.array_equal(last_to_first(found[name]), value.numpy()), name
        else:
            difference = np.abs(last_to_first(found[name]) - value.numpy()).max()
            assert difference < 1e-5 * value.abs().max(), name
    # All at once: near-ties after rounding may change order, which moves scores around them.
    scores = last_to_first(model(first_to_last(x)))
    near = np.abs(scores - expected["scores"].numpy()) < 1e-4 * np.abs(scores).max()
    assert near.mean() > 0.99


def assert_close(
    found: dict[str, np.ndarray], expected: dict[str, np.ndarray], error: float
) -> None:
    """Every array within a relative error, of its norm."""
    for name, value in expected.items():
        assert np.linalg.norm(found[name] - value) < error * np.linalg.norm(value), name


def gradients(model: nn.Module, loss_of, *inputs) -> dict[str, np.ndarray]:
    """The gradient of every parameter, with the names and the layout of PyTorch."""
    weights = model.parameters()
    model.update(nn.value_and_grad(model, loss_of)(model, *inputs)[1])
    found = to_state_dict(model, segnet_names)
    model.update(weights)
    return found


@pytest.mark.parametrize("size", [(64, 96), (101, 77)])
def test_gradients_of_segnet_agree_with_pytorch(size):
    model, twin = pair_of_segnets(seed=1)
    random = np.random.default_rng(1)
    x = random.normal(size=(2, *size, 3)).astype(np.float32)
    classes = random.integers(0, 12, (2, *size))

    scores = twin.eval()(torch.from_numpy(np.moveaxis(x, -1, 1).copy()))["scores"]
    torch.nn.functional.cross_entropy(scores, torch.from_numpy(classes)).backward()
    expected = {name: value.grad.numpy() for name, value in twin.named_parameters()}
    assert len(expected) == 25 * 4 + 2

    def loss_of(model, x, classes):
        return nn.losses.cross_entropy(model(x), classes, reduction="mean")

    model.eval()
    # A ReLU whose input rounding takes across zero changes the gradient a little.
    assert_close(gradients(model, loss_of, mx.array(x), mx.array(classes)), expected, 1e-2)


def test_each_block_of_segnet_trains_as_in_pytorch():
    """With the statistics of the batch. Not all at once: rounding grows with depth, and each ReLU whose input
    it takes across zero changes the gradient, in PyTorch's float32 against its float64 as well."""
    model, twin = pair_of_segnets(seed=1)
    model.train()
    random = np.random.default_rng(1)
    x = torch.from_numpy(random.normal(size=(2, 3, 53, 70)).astype(np.float32))
    noted = twin.train()(x)
    names = list(noted)
    for number, (name, output) in enumerate(noted.items()):
        if not name.startswith(("encoder", "decoder")):
            continue
        part, stage, layer = *name.split()[:1], *map(int, name.split()[1].split("."))
        before = noted[names[number - 1 - (names[number - 1].startswith("indices"))]]
        inputs = (x if number == 0 else before).detach().clone().requires_grad_()
        cotangent = random.normal(size=output.shape).astype(np.float32)
        block = getattr(twin, part)[stage][layer]
        block.zero_grad()
        (block(inputs) * torch.from_numpy(cotangent)).sum().backward()
        expected = {n: v.grad.numpy() for n, v in block.named_parameters() if n != "conv.bias"}

        def loss_of(block, x, cotangent=cotangent):
            return (block(x) * mx.array(np.moveaxis(cotangent, 1, -1))).sum()

        ours = getattr(model, part)[stage].layers[layer]
        found = gradients(ours, loss_of, first_to_last(inputs))
        assert_close(found, expected, 1e-3)
        by_input = mx.grad(loss_of, argnums=1)(ours, first_to_last(inputs))
        assert_close({name: last_to_first(by_input)}, {name: inputs.grad.numpy()}, 1e-3)


def test_enet_goes_from_pytorch_to_mlx_and_back():
    x = np.random.default_rng(2).normal(size=(2, 48, 64, 3)).astype(np.float32)
    first = randomise(ENetTwin(5), seed=2).eval()
    model = ENet(5)
    state = {name: value.numpy() for name, value in first.state_dict().items()}
    model.load_weights(list(convert_state_dict(model, state, ENet.pytorch_names).items()))
    model.eval()

    second = randomise(ENetTwin(5), seed=3).eval()
    back = {
        name: torch.from_numpy(value)
        for name, value in to_state_dict(model, ENet.pytorch_names).items()
    }
    second.load_state_dict(back, strict=True)

    with pooled_indices() as indices:
        scores = model(mx.array(x))
    for twin in (first, second):
        with torch.no_grad():
            expected, expected_indices = twin(torch.from_numpy(np.moveaxis(x, -1, 1).copy()))
        difference = np.abs(last_to_first(scores) - expected.numpy()).max()
        assert difference < 1e-4 * expected.abs().max()
        for found, wanted in zip(indices, expected_indices, strict=True):
            assert np.array_equal(last_to_first(found), wanted.numpy())


@pytest.mark.parametrize(
    "around", [lambda s: s, lambda s: {"state_dict": s}, lambda s: {"model": s}]
)
def test_checkpoints_are_read_however_they_are_wrapped(tmp_path, around):
    state = {"module.a.weight": torch.arange(6.0).reshape(2, 3)}
    torch.save(around(state), tmp_path / "some.pth")
    read = read_state(tmp_path / "some.pth")
    assert {name: value.tolist() for name, value in read.items()} == {
        "a.weight": [[0, 1, 2], [3, 4, 5]]
    }


def test_both_kinds_of_files_give_the_same(tmp_path):
    model = ENet(3)
    state = to_state_dict(model, ENet.pytorch_names)
    torch.save({name: torch.from_numpy(v) for name, v in state.items()}, tmp_path / "a.pth")
    mx.save_safetensors(str(tmp_path / "a.safetensors"), {k: mx.array(v) for k, v in state.items()})
    one, other = (read_state(tmp_path / name) for name in ("a.pth", "a.safetensors"))
    assert set(one) == set(other)
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert len(tree_flatten(model.parameters())) == len(
        convert_state_dict(model, one, ENet.pytorch_names)
    )
