"""Files of weights: writes are atomic, damaged files are refused, nothing in a file is executed."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import pickle
import random
import resource
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path
from unittest import mock

from support.files import load_arrays, replacing, save_arrays

import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from mlx_unpool_zoo import convert
from mlx_unpool_zoo.pytorch import read_state
from programs import Bomb, environment
from small_models import save_state

FILES = ["README.md", "config.json", "model.safetensors"]
ARRAYS = {
    "empty": mx.zeros((0, 2)),
    "transposed": mx.arange(6).reshape(2, 3).T,
    "bfloat16": mx.ones((2, 2), mx.bfloat16),
}


def test_arrays_and_metadata_are_read_back(tmp_path, monkeypatch):
    path = tmp_path / "new" / "name"  # without a suffix, which MLX would append
    save_arrays(path, ARRAYS, {"kind": "test"})
    arrays, metadata = load_arrays(path)
    assert metadata["kind"] == "test"
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert mx.array_equal(arrays[name], array)
    with pytest.raises(OSError, match=str(path)):
        save_arrays(path / "x", ARRAYS)
    assert list(tmp_path.rglob("*")) == [path.parent, path]
    monkeypatch.chdir(path.parent)
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(errno.EINVAL, "not supported")))
    left, new = (path.with_name(f"partial-{n:016}-x") for n in range(2))
    for partial, age in ((left, 4000), (new, 3000)):  # of killed processes
        partial.touch()
        os.utime(partial, 2 * (time.time() - age,))
    long = Path("../other/folder", "x" * 240)
    for target in (long, path):
        save_arrays(target, ARRAYS)
    assert (left.exists(), new.exists(), len(load_arrays(long)[0])) == (False, True, 3)


# Writes files whose arrays are all filled with one number, a different one each time.
WRITER = """
    import itertools, sys
    from pathlib import Path
    import mlx.core as mx
    from support.files import save_arrays
    mx.set_default_device(mx.cpu)
    for number in itertools.count(int(sys.argv[2]), 2):
        save_arrays(Path(sys.argv[1]), {name: mx.full((500_000,), number, mx.int32) for name in "abc"})
        print(number, flush=True)
"""


def number_in(path: Path) -> int:
    """The number that a writer filled all arrays of a file with."""
    arrays, _ = load_arrays(path)
    assert set(arrays) == set("abc")
    (number,) = {value.item() for a in arrays.values() for value in (a.min(), a.max())}
    return number


def test_two_writers_killed_while_they_write_leave_a_whole_file_of_one(tmp_path):
    path, seen = tmp_path / "file.safetensors", set()
    command = [sys.executable, "-c", textwrap.dedent(WRITER), path]
    pipes = {"env": environment(), "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([*command, first], **pipes) for first in "01"]
    try:
        for writer in writers:
            writer.stdout.readline()
        while {number % 2 for number in seen} != {0, 1} or not list(tmp_path.glob("partial-*")):
            assert not any(writer.poll() for writer in writers)
            seen.add(number_in(path))
    finally:
        for writer in writers:
            writer.kill()
    written = [writer.communicate()[0].split() for writer in writers]
    last = number_in(path)
    before = int(([last % 2] + written[last % 2])[-1])
    assert last in (before, before + 2)  # printed, or about to be


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_saving_that_ends_between_two_files_leaves_a_whole_model(tmp_path, monkeypatch, failing):
    """Weights without their configuration, or with that of the model before, contain it."""
    old, new = (zoo.SegNet(number, (8,), (2,)) for number in (2, 3))
    old.about.licence_text = "MIT"
    old.save_pretrained(tmp_path)
    replace, calls = Path.replace, itertools.count(1)

    def failing_replace(self: Path, target: Path) -> None:
        if next(calls) == failing:
            raise OSError(errno.ESTALE, "Stale file handle")
        replace(self, target)

    monkeypatch.setattr(Path, "replace", failing_replace)
    with pytest.raises(OSError, match=r"cannot be written: .* Stale file handle"):
        new.save_pretrained(tmp_path)
    expected = old if failing == 1 else new
    if failing == 2:
        warnings.filterwarnings("ignore", ".*config.json is ignored")
    for _ in range(2):
        found = zoo.from_pretrained(tmp_path)
        assert (found.config["num_classes"], found.about) == (expected.config["num_classes"], expected.about)
        (tmp_path / "config.json").unlink(missing_ok=True)
    new.save_pretrained(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == FILES  # not the old licence


def test_a_configuration_counts_with_the_weights_that_were_saved_with_it(tmp_path):
    for number in range(2):
        zoo.SegNet(2 + number, (8,), (2,)).save_pretrained(tmp_path / str(number))
    file = tmp_path / "0" / "config.json"
    file.write_text(file.read_text().replace('"unknown"', '"edited"'))
    assert zoo.from_pretrained(tmp_path / "0").about.source == "edited"
    file.replace(tmp_path / "1" / "config.json")
    with pytest.warns(UserWarning, match=r"1/config\.json is ignored: it was not saved with model"):
        assert zoo.from_pretrained(tmp_path / "1").about.source == "unknown"


def test_a_full_disk_leaves_the_old_model(tmp_path, monkeypatch, capsys):
    model, folder, source = zoo.ENet(12), tmp_path / "model", tmp_path / "enet.safetensors"
    model.save_pretrained(folder)
    save_state(source, model)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    model.about.source = "x" * 2_000_000
    with disk_of(3_000_000), pytest.raises(OSError, match=f"^{folder}/model.safetensors cannot be written: "):
        model.save_pretrained(folder)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    monkeypatch.setattr(sys, "argv", ["convert", "enet", str(source), str(tmp_path / "new" / "a")])
    with disk_of(1_000_000):
        assert convert.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{tmp_path / 'new' / 'a' / 'model.safetensors'} cannot be written: ")
    assert sorted(tmp_path.iterdir()) == [source, folder]


@contextlib.contextmanager
def disk_of(size: int):
    """No file can be longer than ``size`` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def interrupted(partial: Path) -> None:
    partial.write_text("ne")
    raise KeyboardInterrupt


def test_a_full_disk_and_an_interruption_leave_the_old_file(tmp_path):
    path, link = tmp_path / "file.safetensors", tmp_path / "link"
    save_arrays(path, {"a": mx.zeros(5)})
    before = path.read_bytes()
    with disk_of(100_000), pytest.raises(OSError, match=f"{path} cannot be written: "):
        save_arrays(path, {name: mx.zeros(100_000) for name in "abc"})
    with pytest.raises(KeyboardInterrupt), replacing(path) as partial:
        interrupted(partial)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]  # no partial file is left
    link.symlink_to(path)
    with replacing(link) as partial:
        partial.write_text("new")
    assert link.is_symlink()
    assert path.read_text() == "new"


# Reading.


def refused(path: Path, contents: bytes) -> None:
    path.write_bytes(contents)
    with pytest.raises(ValueError, match=f"{path}: it is damaged") as info:
        load_arrays(path)
    assert len(str(info.value).splitlines()) == 1


def entry(**changes: object) -> dict:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


HEADERS = [
    entry(shape=[65536] * 4, data_offsets=[0, 0]),  # MLX alone: segmentation fault
    entry(shape=[-1], data_offsets=[0, -4]),  # MLX alone: never returns
    entry(data_offsets=[8, 16]),
    {"a": 5},
    None,
]


def test_damaged_and_malicious_files_are_refused(tmp_path):
    path, trace = tmp_path / "file.safetensors", tmp_path / "executed"
    save_arrays(path, {"a": mx.arange(30), "b": mx.ones((3, 4))}, {"kind": "test"})
    contents = path.read_bytes()
    for length in range(0, len(contents), 7):
        refused(path, contents[:length])
    refused(path, contents + b"more")
    refused(path, contents[:-1] + bytes([contents[-1] ^ 1]))  # another number
    for header in HEADERS:
        text = json.dumps(header).encode()
        refused(path, len(text).to_bytes(8, "little") + text + bytes(8))
    payload = pickle.dumps({"state_dict": {"w": Bomb(trace)}})
    refused(path, payload)
    with (tmp_path / "x.npz").open("wb") as file:
        np.savez(file, w=np.array([Bomb(trace)], dtype=object))
    refused(path, (tmp_path / "x.npz").read_bytes())
    assert not trace.exists()
    pickle.loads(payload)
    assert trace.exists()  # the payload would run


def test_a_file_without_a_checksum_is_read_and_a_missing_one_is_named(tmp_path):
    path = tmp_path / "others.safetensors"
    mx.save_safetensors(str(path), {"a": mx.ones(3)}, {"format": "mlx"})
    arrays, metadata = load_arrays(path)
    assert arrays["a"].tolist() == [1, 1, 1]
    assert metadata == {"format": "mlx"}  # no checksum
    with pytest.raises(FileNotFoundError, match=r"missing\.safetensors"):
        load_arrays(tmp_path / "missing.safetensors")


@pytest.mark.external
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_broken_pytorch_files_are_refused_in_a_line(tmp_path, legacy):
    torch = pytest.importorskip("torch")
    path, damage, refusals = tmp_path / "state.pth", random.Random(0), []
    state = {"state_dict": {f"layer{n}.weight": torch.ones(2, 3) for n in range(4)}}
    torch.save(state, path, _use_new_zipfile_serialization=not legacy)
    contents = path.read_bytes()
    for number in range(100):
        broken, position = bytearray(contents), damage.randrange(len(contents))
        if number < 30:
            del broken[position:]
        broken[position : position + 1] = [damage.randrange(256)]
        path.write_bytes(broken)
        try:
            read_state(path)
        except ValueError as error:
            refusals.append(str(error))
    assert len(refusals) > 30
    assert [line for text in refusals for line in text.splitlines()] == refusals


@pytest.mark.external
def test_a_checkpoint_that_contains_itself_is_refused(tmp_path):
    torch = pytest.importorskip("torch")
    checkpoint: dict = {}
    checkpoint["model"] = {"state_dict": checkpoint}
    torch.save(checkpoint, tmp_path / "loop.pth")
    with pytest.raises(ValueError, match=r"loop\.pth: the checkpoint contains itself"):
        read_state(tmp_path / "loop.pth")
