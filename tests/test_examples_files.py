"""Files of weights: writes are atomic, damaged files are refused, nothing in a file is executed."""

from __future__ import annotations

import json
import pickle
import random
import resource
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_unpool_zoo.pytorch import read_state
from programs import Bomb, environment
from support.files import load_arrays, replacing, save_arrays

# Writing.


ARRAYS = {
    "scalar": mx.array(3),
    "empty": mx.zeros((0, 2)),
    "transposed": mx.arange(6).reshape(2, 3).T,
    "bool": mx.array([True, False]),
    "bfloat16": mx.ones((2, 2), mx.bfloat16),
    "complex": mx.array([1 + 2j]),
}


def test_arrays_and_metadata_are_read_back(tmp_path):
    path = tmp_path / "new" / "file.safetensors"
    save_arrays(path, ARRAYS, {"kind": "test"})
    arrays, metadata = load_arrays(path)
    assert metadata == {"kind": "test"}
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert mx.array_equal(arrays[name], array)
    assert list(path.parent.iterdir()) == [path]


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


def test_two_writers_killed_at_a_random_moment_leave_a_whole_file_of_one(tmp_path):
    """Also while they write. Repeated until two were killed within a file."""
    path, moments = tmp_path / "file.safetensors", random.Random(0)
    interrupted, seen = 0, set()
    for _ in range(20):
        command = [sys.executable, "-c", textwrap.dedent(WRITER), path]
        pipes = {"env": environment(), "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        writers = [subprocess.Popen([*command, first], **pipes, text=True) for first in "01"]
        try:
            for writer in writers:
                writer.stdout.readline()
            until = time.monotonic() + moments.uniform(0.3, 0.6)
            while time.monotonic() < until:
                seen.add(number_in(path))
        finally:
            for writer in writers:
                writer.kill()
        written = [writer.communicate() for writer in writers]
        assert [errors for _, errors in written] == ["", ""]
        last = number_in(path)
        numbers = [int(number) for number in written[last % 2][0].split()] or [last % 2]
        assert last in (numbers[-1], numbers[-1] + 2)  # printed, or about to be
        for partial in tmp_path.glob("partial-*"):
            interrupted += 1
            partial.unlink()
        if interrupted >= 2:
            break
    assert interrupted >= 2
    assert {number % 2 for number in seen} == {0, 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file_and_no_partial_one(tmp_path):
    path = tmp_path / "file.safetensors"
    save_arrays(path, {"a": mx.zeros(5)})
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match=f"{path} cannot be written: "):
            save_arrays(path, {name: mx.zeros(100_000) for name in "abc"})
        with pytest.raises(OSError, match="File too large"), replacing(path) as partial:
            partial.write_bytes(bytes(200_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_partial_files_links_and_folders(tmp_path):
    path, link = tmp_path / "file.txt", tmp_path / "link.txt"
    path.write_text("old")

    def interrupted() -> None:
        with replacing(path) as partial:
            partial.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]  # no partial file is left
    link.symlink_to(path)
    with replacing(link) as partial:
        partial.write_text("new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    with pytest.raises(OSError, match=str(path)):
        save_arrays(path / "x.safetensors", {"a": mx.zeros(1)})


# Reading.


@pytest.fixture
def saved(tmp_path) -> Path:
    path = tmp_path / "file.safetensors"
    save_arrays(path, {"a": mx.arange(30), "b": mx.ones((3, 4))}, {"kind": "test"})
    return path


def refused(path: Path, contents: bytes) -> str:
    path.write_bytes(contents)
    with pytest.raises(ValueError, match=str(path)) as info:
        load_arrays(path)
    (line,) = str(info.value).splitlines()
    return line


def test_truncations_are_refused(saved):
    contents = saved.read_bytes()
    for length in range(0, len(contents), 3):
        assert "is damaged" in refused(saved, contents[:length])
    refused(saved, contents + b"more")


def test_a_changed_number_is_refused(saved):
    contents = bytearray(saved.read_bytes())
    contents[-1] ^= 1
    assert "is damaged" in refused(saved, bytes(contents))


def entry(**changes: object) -> dict:
    return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


@pytest.mark.parametrize(
    "header",
    [
        entry(shape=[65536] * 4, data_offsets=[0, 0]),  # MLX alone: segmentation fault
        entry(shape=[-1], data_offsets=[0, -4]),  # MLX alone: never returns
        entry(shape=[2**32, 2**32], data_offsets=[0, 0]),
        entry(shape=[-1, -2]),
        entry(shape=[2.5]),
        entry(data_offsets=[8, 16]),
        entry(data_offsets=[2**64 - 8, 0]),
        entry(dtype="F99"),
        entry() | {"b": entry()["a"]},
        {"a": 5},
        {"__metadata__": {"x": 5}},
        [1, 2],
        None,
    ],
    ids=str,
)
def test_malformed_headers_are_refused(tmp_path, header):
    text = json.dumps(header).encode()
    contents = len(text).to_bytes(8, "little") + text + bytes(8)
    assert "is damaged, or not a safetensors file" in refused(tmp_path / "x.safetensors", contents)


def test_a_file_without_a_checksum_is_read_and_a_missing_one_is_named(tmp_path):
    path = tmp_path / "others.safetensors"
    mx.save_safetensors(str(path), {"a": mx.ones(3)}, {"format": "mlx"})
    arrays, metadata = load_arrays(path)
    assert arrays["a"].tolist() == [1, 1, 1]
    assert metadata == {"format": "mlx"}
    with pytest.raises(FileNotFoundError, match=r"missing\.safetensors"):
        load_arrays(tmp_path / "missing.safetensors")
    with pytest.raises(OSError, match="directory"):
        load_arrays(tmp_path)


def test_nothing_in_a_checkpoint_is_executed(tmp_path):
    trace = tmp_path / "executed"
    payload = pickle.dumps({"state_dict": {"w": Bomb(trace)}})
    pickle.loads(payload)
    trace.unlink()  # the payload would run
    for name in ("x.safetensors", "checkpoint.safetensors"):
        assert "is damaged" in refused(tmp_path / name, payload)
    with (tmp_path / "x.npz").open("wb") as file:
        np.savez(file, w=np.array([Bomb(trace)], dtype=object))
    assert "is damaged" in refused(tmp_path / "y.safetensors", (tmp_path / "x.npz").read_bytes())
    assert not trace.exists()


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


def test_a_name_without_a_suffix_and_a_missing_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_arrays(Path("name"), {"a": mx.arange(3)})
    assert load_arrays(Path("name"))[0]["a"].tolist() == [0, 1, 2]
    with pytest.raises(FileNotFoundError, match="missing"):
        save_arrays(Path("missing/../x"), {"a": mx.arange(3)})
    assert [path.name for path in tmp_path.iterdir()] == ["name"]
