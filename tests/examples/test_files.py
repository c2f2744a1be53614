"""Files of weights: writes are atomic, damaged files are refused, nothing in a file is executed."""

import errno
import itertools
import json
import os
import pickle
import random
import stat
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from helpers.faults import check_faults, contents, damaged
from helpers.programs import Bomb, environment
from helpers.small_models import forget_config, save_state
from mlx.utils import tree_flatten, tree_map
from mlx_unpool_zoo.files import load_arrays, save_arrays, write_file
from PIL import Image

from mlx_unpool.porting.messages import cut

ARRAYS = {
    "empty": mx.zeros((0, 2)),
    "transposed": mx.arange(6).reshape(2, 3).T,
    "bfloat16": mx.ones((2, 2), mx.bfloat16),
}


def test_arrays_and_metadata_are_read_back(tmp_path):
    path = tmp_path / "new" / "name"  # without a suffix, which MLX would append
    save_arrays(path, ARRAYS, {"kind": "test"})
    arrays, metadata = load_arrays(path)
    assert metadata["kind"] == "test"
    content = lambda arrays: {name: (array.dtype, array.tolist()) for name, array in arrays.items()}
    assert content(arrays) == content(ARRAYS)
    with pytest.raises(OSError, match=str(path)):
        save_arrays(path / "x", ARRAYS)
    assert list(tmp_path.rglob("*")) == [path.parent, path]
    with pytest.raises(FileNotFoundError, match=r"missing\.safetensors"):
        load_arrays(tmp_path / "missing.safetensors")


def test_modes_are_kept_and_only_old_temporary_files_removed(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    path = Path("../new/folder", "x" * 240)
    save_arrays(path, ARRAYS)
    path.chmod(0o640)
    names = [f"partial-0123456789abcdef-{n}" for n in "ab"] + ["partial-0123-x", "partial-notes"]
    for name, age in zip(names, (4000, 3000, 4000, 4000)):
        path.with_name(name).touch()
        os.utime(path.with_name(name), 2 * (time.time() - age,))
    modes: list[int] = []
    write_file(path, lambda file: modes.append(os.fstat(file.fileno()).st_mode & 0o777))
    assert modes == [0o600]  # until it has its name, because an existing file may be private
    save_arrays(path, {"a": mx.ones(1)})
    assert (path.stat().st_mode & 0o777, [*load_arrays(path)[0]]) == (0o640, ["a"])
    assert {file.name for file in path.parent.iterdir()} == {*names[1:], path.name}


def test_links_in_a_folder_are_replaced_and_a_link_to_a_folder_is_followed(tmp_path):
    """For example links into the cache of the Hugging Face Hub."""
    others, folder = tmp_path / "others", tmp_path / "folder"
    others.mkdir()
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    zoo.SegNet(2, (8,), (2,)).save_pretrained(others)
    (others / "LICENSE").write_text("MIT")
    before = contents(others)
    for path in others.iterdir():
        (folder / path.name).symlink_to(path)
    new = zoo.SegNet(3, (8,), (2,))
    new.about.licence_text = "BSD"
    new.save_pretrained(tmp_path / "link")
    assert contents(others) == before
    assert not any(path.is_symlink() for path in folder.iterdir())
    assert zoo.from_pretrained(folder).about == new.about


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_not_a_file_is_not_replaced(kind, tmp_path):
    path = tmp_path / "a"
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    with pytest.raises(
        OSError, match=f"{path} cannot be written: it is a folder, a pipe or a device"
    ):
        write_file(path, b"")
    assert [*tmp_path.iterdir()] == [path]
    assert not path.is_file()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_pipe_in_a_model_is_refused(name, tmp_path):
    """Reading it would wait for ever."""
    zoo.SegNet(2, (8,), (2,)).save_pretrained(tmp_path)
    forget_config(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(
        ValueError, match=f"{name}: it must be a file, but it is a pipe or a device"
    ):
        zoo.from_pretrained(tmp_path)


# Saves models whose parts all contain one number, a different one each time.
SAVER = """
    import itertools, sys
    import mlx.core as mx, mlx_unpool_zoo as zoo
    from mlx.utils import tree_map
    mx.set_default_device(mx.cpu)
    for number in itertools.count(int(sys.argv[2]), 2):
        model = zoo.SegNet(2 + number % 2, (8,), (2,))
        model.update(tree_map(lambda v: mx.full(v.shape, float(number)), model.parameters()))
        model.about.source = model.about.licence_text = str(number)
        model.save_pretrained(sys.argv[1])
        print(number, flush=True)
"""


def number_in(folder: Path) -> int:
    """The number in the weights, the configuration and the licence of a model."""
    model = zoo.from_pretrained(folder)
    (number,) = {v.item() for _, v in tree_flatten(tree_map(mx.max, model.parameters()))}
    assert (model.about.source, model.about.licence_text) == (str(int(number)),) * 2
    assert model.config["num_classes"] == 2 + number % 2
    return int(number)


def test_two_writers_are_killed_while_they_save_and_a_model_is_loaded(tmp_path):
    command, delay = [sys.executable, "-c", textwrap.dedent(SAVER), tmp_path], random.Random(0)
    pipes = {"env": environment(), "stdout": subprocess.PIPE, "text": True}
    for _ in range(3):
        writers = [subprocess.Popen([*command, first], **pipes) for first in "01"]
        try:
            for writer in writers:
                writer.stdout.readline()
            seen = set()
            warnings.filterwarnings("ignore", "\\S+config.json differs")  # between two renames
            while {number % 2 for number in seen} != {0, 1} or len(seen) < 4:
                assert not any(writer.poll() for writer in writers)
                seen.add(number_in(tmp_path))
            time.sleep(delay.random() / 20)
        finally:
            for writer in writers:
                writer.kill()
                writer.communicate()
        number_in(tmp_path)


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("failing", [1, 2, 3, 4])
@pytest.mark.filterwarnings("ignore:.*config.json differs from")
def test_saving_that_fails_at_a_file_leaves_a_whole_model(tmp_path, monkeypatch, call, failing):
    """On a file system that cannot synchronise folders."""
    old, new = (zoo.SegNet(number, (8,), (2,)) for number in (2, 3))
    old.about.licence_text, new.about.licence_text = "MIT", "BSD"
    old.save_pretrained(tmp_path)
    before, count = contents(tmp_path), itertools.count(1)
    owner, original = (Path, Path.replace) if call == "replace" else (os, os.fsync)

    def fail(what: Any, *target: Path) -> None:
        if call == "fsync" and stat.S_ISDIR(os.fstat(what).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        if next(count) == failing:
            raise OSError(errno.ESTALE, "Stale file handle")
        original(what, *target)

    monkeypatch.setattr(owner, call, fail)
    if failing == 1:
        with pytest.raises(
            OSError, match=r"/model\.safetensors cannot be written: .* Stale file handle"
        ):
            new.save_pretrained(tmp_path)
        assert contents(tmp_path) == before
        return
    name = ["config.json", "README.md", "LICENSE"][failing - 2]
    with pytest.warns(
        UserWarning, match=rf"^The model is saved, .* but {name} is still .*: .*/{name} "
    ):
        new.save_pretrained(tmp_path)
    assert set(tmp_path.iterdir()) == set(before)
    loaded = zoo.from_pretrained(tmp_path)
    assert (loaded.config["num_classes"], loaded.about) == (3, new.about)


@pytest.mark.parametrize("text", ['{"model_type": "enet"}', "[1", None])
def test_the_configuration_in_the_weights_is_used_and_a_different_one_is_named(text, tmp_path):
    model = zoo.SegNet(2, (8,), (2,))
    model.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    assert (
        "a copy. The configuration in model.safetensors is used"
        in json.loads(file.read_text())["note"]
    )
    file.write_text(text or file.read_text().replace('"unknown"', '"edited"'))
    says = rf"^{file} differs from .* in model\.safetensors, .* set model\.about\.classes"
    with pytest.warns(UserWarning, match=says):
        assert zoo.from_pretrained(tmp_path).about.source == "unknown"
    file.unlink()
    assert zoo.from_pretrained(tmp_path).about == model.about


def test_files_of_a_person_are_kept(tmp_path):
    """Those in a folder that had no model, and a model card that was edited."""
    texts = {name: f"my {name}" for name in ("README.md", "LICENSE", "config.json")}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    model = zoo.SegNet(2, (8,), (2,))
    model.about.licence_text = "MIT"
    says = r"was edited or is not of this model: it is now \S+\.old\.$"
    with pytest.warns(UserWarning, match=says) as warned:
        model.save_pretrained(tmp_path)
    assert len(warned) == 3
    assert {name: (tmp_path / f"{name}.old").read_text() for name in texts} == texts
    card = tmp_path / "README.md"
    edited = card.read_text().replace("# SegNet", "# My network")
    card.write_text(edited)
    with pytest.warns(UserWarning, match=r"now README\.md\.old2\."):
        model.save_pretrained(tmp_path)
    assert (tmp_path / "README.md.old2").read_text() == edited
    before = contents(tmp_path)
    model.save_pretrained(tmp_path)
    assert contents(tmp_path) == before


def test_weights_without_a_configuration_use_config_json(tmp_path):
    model = zoo.SegNet(2, (8,), (2,))
    model.about.licence_text = "MIT"
    model.save_pretrained(tmp_path)
    forget_config(tmp_path)
    assert zoo.from_pretrained(tmp_path).about == model.about


def test_the_licence_of_the_model_before_is_renamed(tmp_path):
    first, second = (zoo.SegNet(number, (8,), (2,)) for number in (2, 3))
    first.about.licence_text = "MIT"
    first.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=r"LICENSE was edited .*: it is now LICENSE\.old"):
        second.save_pretrained(tmp_path)
    assert [(tmp_path / name).exists() for name in ("LICENSE", "LICENSE.old")] == [False, True]
    assert zoo.from_pretrained(tmp_path).about == second.about


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    model = zoo.SegNet(3, (8,), (2,))
    model.classifier.bias = mx.array([0.0, mx.nan, 0.0])
    with pytest.raises(ValueError, match=r"must be finite, but these are not: classifier.bias"):
        model.save_pretrained(tmp_path)


WRITERS = {  # their arguments, for a folder of inputs and one of outputs
    "predict": "IN/model IN/a.png --output OUT/x.png",
    "export.py": "IN/model OUT/x.mlxfn --shape 1 8 8 3",
    "convert": "segnet IN/state.safetensors OUT/x",
}


@pytest.mark.parametrize("program", WRITERS)
def test_no_fault_damages_a_file_of_a_program(program, tmp_path):
    inputs = tmp_path / "in"
    zoo.SegNet(3, (4,), (1,)).save_pretrained(inputs / "model")
    save_state(inputs / "state.safetensors", zoo.SegNet(3, (4,), (1,)))
    Image.new("RGB", (8, 8)).save(inputs / "a.png")
    words = WRITERS[program].replace("IN", str(inputs))
    check_faults(
        program, lambda out: words.replace("OUT", str(out)).split(), inputs, tmp_path / "out"
    )


# Reading.


HEADERS = [  # of an array: shape and data_offsets
    ([65536] * 4, [0, 0]),  # MLX alone: segmentation fault
    ([-1], [0, -4]),  # MLX alone: never returns
    ([2], [8, 16]),
]


def safetensors_of(dtype: str, size: int) -> bytes:
    """A file with an array of two numbers of a type with this size, all bits 0."""
    header = json.dumps(
        {"a": {"dtype": dtype, "shape": [2], "data_offsets": [0, 2 * size]}}
    ).encode()
    return len(header).to_bytes(8, "little") + header + bytes(2 * size)


def test_float64_becomes_float32(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors_of("F64", 8))
    assert load_arrays(path)[0]["a"].dtype == mx.float32


@pytest.mark.parametrize("dtype", ["F8_E5M2", "F8_E4M3"])
def test_types_that_are_not_supported_are_named(dtype, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors_of(dtype, 1))
    with pytest.raises(
        ValueError, match=f"^it has arrays of the type {dtype}, which is not supported: save as"
    ):
        load_arrays(path)


def test_long_texts_of_a_damaged_file_are_cut(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(safetensors_of("a" * 5000, 1))
    with pytest.raises(ValueError, match="it cannot be read as a safetensors file: ") as error:
        load_arrays(path)
    assert len(str(error.value)) < 500


def test_long_names_are_cut():
    assert len(cut(["a" * 5000] * 20)) < 4000


def test_damaged_and_malicious_files_are_refused(tmp_path):
    path, trace = tmp_path / "file.safetensors", tmp_path / "executed"
    save_arrays(path, {"a": mx.arange(30), "b": mx.ones((3, 4))}, {"kind": "test"})
    content = path.read_bytes()
    headers = [{"a": {"dtype": "F32", "shape": s, "data_offsets": o}} for s, o in HEADERS] + [
        {"a": 5},
        None,
    ]
    payload = pickle.dumps({"state_dict": {"w": Bomb(trace)}})
    with (tmp_path / "x.npz").open("wb") as file:
        np.savez(file, w=np.array([Bomb(trace)], dtype=object))
    for wrong in (
        *(content[:length] for length in range(0, len(content), 7)),
        *damaged(content, 20),
        content + b"more",
        content.replace(b"[3,4]", b"[4,3]"),
        content.replace(b'"test"', b'"Test"'),  # of the metadata
        content[:-1] + bytes([content[-1] ^ 1]),  # another number
        *(
            len(h).to_bytes(8, "little") + h + bytes(8)
            for h in (json.dumps(h).encode() for h in headers)
        ),
        payload,
        (tmp_path / "x.npz").read_bytes(),
    ):
        path.write_bytes(wrong)
        says = r"^it (is damaged|cannot be read as a safetensors file): [^\n]*$"
        with pytest.raises(ValueError, match=says):
            load_arrays(path)
    assert not trace.exists()
    pickle.loads(payload)
    assert trace.exists()  # the payload would run
