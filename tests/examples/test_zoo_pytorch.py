"""Files that PyTorch wrote: whole models and others."""

import sys

import numpy as np
import pytest
from mlx_unpool_zoo import read_state

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.external


class Dense(torch.nn.Module):
    """A network whose class is in a module that cannot be imported."""

    __module__ = "authors"

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)
        self.blocks = torch.nn.Sequential(torch.nn.PReLU(), torch.nn.Linear(2, 3, bias=False))
        self.log_sigma = torch.nn.Parameter(torch.zeros(()))
        self.twin = self.norm  # listed twice
        self.register_buffer("scratch", torch.zeros(1), persistent=False)


def test_a_whole_pickled_model_is_read_without_its_code(tmp_path, monkeypatch):
    model, names = Dense(), [tmp_path / name for name in ("whole.pth.tar", "inside.pth", "old.pth")]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "authors", sys.modules[__name__])
        torch.save(model, names[0])
        torch.save({"epoch": 3, "model": model}, names[1])
        # As PyTorch 0.3: plain parameters with requires_grad, volatile and hooks, and the
        # source of layers.
        old = lambda self, _: (torch.nn.Parameter, (self.data,), (True, False, {}))
        patch.setattr(torch.nn.Parameter, "__reduce_ex__", old)
        torch.save(model, names[2], _use_new_zipfile_serialization=False)
    # The source has changed.
    names[2].write_bytes(names[2].read_bytes().replace(b"def forward", b"def FORWARD"))
    expected = model.state_dict()
    for path in names:
        state = read_state(path)
        assert state.keys() == expected.keys()
        assert all(np.array_equal(state[name], expected[name]) for name in expected)


def test_nested_modules_and_expanded_tensors_take_neither_time_nor_memory(tmp_path):
    """2^20 modules, tensors of petabytes."""
    path, model = tmp_path / "large.pth", torch.nn.Linear(1, 1)
    for _ in range(20):
        outer = torch.nn.Module()
        outer.a, outer.b, model = model, model, outer
    torch.save(model, path)
    with pytest.raises(
        ValueError, match=r"large\.pth: the names in a model must have at most 10 million"
    ):
        read_state(path)
    one, large = torch.zeros(1).half(), torch.zeros(10**6).half()
    for state in (
        {f"a{n}": one.expand(10**6) for n in range(10**4)},
        {f"a{n}": large.view(10, -1) for n in range(10**4)},
    ):
        torch.save(state, path)
        with pytest.raises(
            ValueError, match=r": a\d* \(\d.* is expanded from a few stored elements"
        ):
            read_state(path)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_torchscript_file_is_named(tmp_path):
    torch.jit.trace(torch.nn.Linear(2, 3), torch.zeros(1, 2)).save(tmp_path / "a.pth")
    with pytest.raises(
        ValueError, match=r"a.pth: .*a TorchScript file.* torch.save\(model.state_dict"
    ):
        read_state(tmp_path / "a.pth")
