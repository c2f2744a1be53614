"""Files of weights are read without the frameworks that wrote them, and no code in them is run."""

import itertools
import os
import pickle
import pickletools
import tracemalloc
import zipfile
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
import tflite
from helpers.faults import damaged
from helpers.programs import Bomb
from helpers.small_models import save_state, small_model
from helpers.tflite_files import constants_of, tflite_of
from helpers.torch_files import file_of, pickled, save_checkpoint, tensor
from mlx_unpool_zoo.checkpoints import read_checkpoint, read_state, read_tflite
from mlx_unpool_zoo.state_dicts import state_of
from mlx_unpool_zoo.torch_files import DTYPES

NUMBERS = np.arange(25, dtype=np.float32)
DATA = {"0": NUMBERS.tobytes()}
PART = b"(U\x01pK\x01K\x18t"  # without the first number
TENSORS = {  # of these numbers
    "whole": (tensor("2 3 4", "12 4 1", 25, offset=1), NUMBERS[1:].reshape(2, 3, 4)),
    "rows": (tensor("6", "2", 25, offset=4, part=PART), NUMBERS[5:17:2]),
    "turned": (tensor("3 4", "1 3", 25, offset=1), NUMBERS[1:13].reshape(4, 3).T),
    "one": (tensor("", "", 25, offset=7), NUMBERS[7]),
}
STATE = (
    b"}(" + b"".join(b"U%c%s" % (len(n), n.encode()) + t for n, (t, _) in TENSORS.items()) + b"u"
)
EMPTY = b"U\x08_buffers}U\x08_modules}"
INNER = b"cauthors\nConv\n)\x81}(U\x0b_parameters" + STATE + EMPTY + b"ub"
NET = (
    b"cauthors\nNet\n)\x81}(U\x0b_parameters}" + EMPTY + b"U\x08_modules}U\x04conv" + INNER + b"sub"
)


@pytest.mark.parametrize("kind", ["zip", "old"])
def test_files_of_torch_are_read_without_it(kind, tmp_path):
    path = tmp_path / "a.pth"
    path.write_bytes(file_of(b"}(U\x0astate_dict" + STATE + b"U\x05epochK\x03u", DATA, kind))
    for other in ("a.pkl", "a.model", "a.ckpt"):
        arrays = read_state(path.rename(tmp_path / other))
        assert [*arrays] == [*TENSORS]
        assert [
            n for n, (_, value) in TENSORS.items() if not np.array_equal(arrays[n], value)
        ] == []
        path = tmp_path / other
    arrays = read_checkpoint(path)["state_dict"]
    assert np.shares_memory(arrays["whole"], arrays["rows"])
    path.write_bytes(file_of(b"}U\x05model" + NET + b"s", DATA, kind))
    assert [*read_state(path)] == [f"conv.{name}" for name in TENSORS]
    path.write_bytes(file_of(STATE, DATA, kind, "big"))
    with pytest.raises(
        ValueError, match=r"a\.ckpt: it cannot .*: it is big-endian, which is not supported"
    ):
        read_state(path)


@pytest.mark.external
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("options", [{"zip": True, "checksums": True}, {"zip": True}, {}], ids=str)
def test_what_pytorch_saves_is_read(options, protocol, tmp_path):
    torch = pytest.importorskip("torch")
    names = [name.removeprefix("torch.").removesuffix("Storage").lower() for name in DTYPES]
    kinds = [
        getattr(torch, {"char": "int8", "byte": "uint8"}.get(name, name), None) for name in names
    ]
    kinds += [torch.complex64, torch.complex128]
    state = {str(kind): torch.arange(6).to(kind).reshape(2, 3) for kind in kinds if kind}
    state = {
        name: value for name, value in state.items() if options or "uint" not in name or "8" in name
    }
    full, parameter = torch.rand(2, 3, 4, 5), torch.nn.Parameter(torch.ones(2))
    parameter.note, full.note = "attributes change how a tensor is pickled", 1
    state |= {
        "turned": full.permute(0, 2, 3, 1),
        "part": full.half()[1:, ::2],
        "parameter": parameter,
    }
    state |= {"full": full, "expanded": full[:1, 0, 0, 0].expand(9), "empty": full[:0]}
    state["0"] = full.bfloat16()[0, 0, 0, 0]
    path, checkpoint = (
        tmp_path / "a.pth",
        {"model": state, "rng": torch.get_rng_state(), "args": Path("a")},
    )
    torch.serialization.set_crc32_options("checksums" in options)
    form = {"_use_new_zipfile_serialization": "zip" in options, "pickle_protocol": protocol}
    torch.save(checkpoint, path, **form)
    torch.serialization.set_crc32_options(True)
    expected, arrays = torch.load(path, weights_only=False)["model"], read_state(path)
    assert [*arrays] == [*expected]
    for name, value in expected.items():
        wide = value.detach().float() if value.is_floating_point() else value
        assert np.array_equal(arrays[name], wide.numpy()), name


REFUSED = {  # tensors whose numbers are not those of their storages
    "the option 'neg' of PyTorch": lambda torch: torch._neg_view(torch.ones(2)),
    "the option 'conj' of PyTorch": lambda torch: torch.ones(2, dtype=torch.complex64).conj(),
    "a tensor of torch.float8_e5m2": lambda torch: torch.ones(2).to(torch.float8_e5m2),
    "a tensor of torch.complex32": lambda torch: torch.ones(2).to(torch.complex32),
    "qtensor|a tensor of torch.QInt8Storage": lambda torch: torch.quantize_per_tensor(
        torch.ones(2), 1, 0, torch.qint8
    ),
    "sparse_tensor": lambda torch: torch.eye(2).to_sparse(),
    "sparse_tensor, csr": lambda torch: torch.eye(2).to_sparse_csr(),
    "meta_tensor": lambda torch: torch.ones(2, device="meta"),
    "nested_tensor": lambda torch: torch.nested.nested_tensor([torch.ones(2), torch.ones(1)]),
    "rebuild_njt": lambda torch: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
    "wrapper_subclass": lambda torch: torch.masked.masked_tensor(torch.ones(2), torch.ones(2) > 0),
}


@pytest.mark.external
@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("says", REFUSED)
@pytest.mark.filterwarnings(
    "ignore:.*(quantize_per_tensor|nested tensors|masked|Sparse CSR|ComplexHalf)"
)
def test_tensors_that_would_be_other_numbers_are_refused(says, is_zip, tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "a.pth"
    state = {"a": REFUSED[says](torch), "b": torch.ones(1)}
    torch.save(state, path, _use_new_zipfile_serialization=is_zip)
    kind = says.partition(",")[0]
    says = f"^{path}: .*({kind}).*, which is not supported[.:] [Ss]ave "
    with pytest.raises(ValueError, match=says) as error:
        read_state(path)
    assert "damaged" not in str(error.value)


def test_arguments_that_no_version_of_pytorch_passes_are_refused(tmp_path):
    """They could change the numbers."""
    path = tmp_path / "a.pth"
    content = tensor("25", "1", 25).removesuffix(b"tR") + b"\x89NNK\1tR"
    path.write_bytes(file_of(b"}U\x01a" + content + b"s", DATA, "zip"))
    with pytest.raises(
        ValueError, match=r"passes arguments to torch._utils._rebuild_tensor_v2 that are not"
    ):
        read_state(path)


@pytest.mark.parametrize("value", [b"\x88", b"\x89"])
def test_options_of_a_tensor_are_not_dropped(value, tmp_path):
    """True is refused, False changes nothing."""
    path, options = tmp_path / "a.pth", b"\x89N}U\x05other" + value + b"s"
    content = tensor("25", "1", 25).removesuffix(b"tR") + options + b"tR"
    path.write_bytes(file_of(b"}U\x01a" + content + b"s", DATA, "zip"))
    if value == b"\x89":
        assert np.array_equal(read_state(path)["a"], NUMBERS)
    else:
        with pytest.raises(ValueError, match="it has a tensor with the option 'other' of PyTorch"):
            read_state(path)


def test_long_names_in_a_checkpoint_are_cut(tmp_path):
    path = tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps({"a" * 5000: 1, "b": 1}))
    with pytest.raises(ValueError, match="'aaaaa") as error:
        read_state(path)
    assert len(str(error.value)) < 1200


CONSTANTS = {
    "kernel": NUMBERS.reshape(5, 5),
    "size": np.array([8, 8], np.int32),
    "pads": np.zeros((4, 2), int),
}


def test_all_constants_of_a_tflite_file_are_read(tmp_path):
    path = tmp_path / "a.tflite"
    path.write_bytes(tflite_of(CONSTANTS))
    state = read_checkpoint(path)["state_dict"]
    assert [(name, value.tolist()) for name, value in state.items()] == [
        (name, value.tolist()) for name, value in CONSTANTS.items()
    ]


def test_constants_that_are_no_dense_arrays_are_named(tmp_path):
    path = tmp_path / "a.tflite"
    for options, says in (
        ({"kind": tflite.TensorType.INT4}, "'kernel' is of the type INT4, which is not supported"),
        ({"sparse": True}, "'kernel' is sparse, which is not supported"),
        ({"offset": 99}, "'kernel' is outside of the graph, .*, which is not supported"),
    ):
        path.write_bytes(tflite_of(CONSTANTS, **options))
        with pytest.raises(ValueError, match=f"^{path}: .*{says}"):
            read_tflite(path)


@pytest.mark.parametrize("field", ["BuiltinCode", "DeprecatedBuiltinCode"])
def test_the_larger_code_of_an_operator_counts(field, tmp_path):
    path = tmp_path / "a.tflite"
    path.write_bytes(tflite_of(CONSTANTS, codes=[{field: tflite.BuiltinOperator.CONV_2D}]))
    assert read_checkpoint(path)["operators"] == {"CONV_2D": 1}


@pytest.mark.filterwarnings("ignore:Ignored entries")
def test_damaged_files_are_refused_in_a_line_or_read_as_other_weights(tmp_path):
    contents = {kind: file_of(b"}U\x05model" + STATE + b"s", DATA, kind) for kind in ("zip", "old")}
    contents["model"] = file_of(NET, DATA, "zip")
    arrays = {"a": mx.ones((2, 3)), "b": mx.zeros(4)}
    contents["safetensors"] = save_state(tmp_path / "a.safetensors", arrays).read_bytes()
    contents["tflite"] = tflite_of(
        dict(itertools.islice(constants_of(small_model("hair")[0]).items(), 9))
    )
    for kind, content in contents.items():
        path, refusals = (
            tmp_path / (f"a.{kind}" if kind in ("safetensors", "tflite") else "a.pth"),
            [],
        )
        shorter = (content[:n] for n in range(0, len(content), len(content) // 40))
        for broken in (*damaged(content, 150), *shorter):
            path.write_bytes(broken)
            try:
                read_state(path)
            except ValueError as error:
                refusals.append(str(error))
        assert len(refusals) > 40, kind
        assert [line for text in refusals for line in text.splitlines()] == refusals
        assert all(text.startswith(f"{path}: ") for text in refusals)


NESTED = b"K\x01\x85" + b"".join(b"q%ch%c\x86" % (n, n) for n in range(100))  # PUT n, GET n, TUPLE2
MEMO = b"".join(b"r" + n.to_bytes(4, "little") for n in range(2**20 + 2))
LIST = b"](" + b"".join(b"M" + n.to_bytes(2, "little") for n in range(9999)) + b"eq\0"
PAIRS = b"](" + b"".join(b"](M" + n.to_bytes(2, "little") + b"Ne" for n in range(9999)) + b"eq\0"
ORDERED = b"ccollections\nOrderedDict\nq\1"
CALLS = b"ctorch\nSize\nq\xffK\1\x85" + b"".join(
    b"q%ch\xffh%ch%c\x86\x85R" % (n, n, n) for n in range(99)
)
LARGE, SQUARE = (2**40).to_bytes(8, "little"), f"{2**20} {2**20}"
DAMAGED, OBJECTS = "damaged, or not a file of PyTorch", "makes more than a million objects"


def hostile(shape: str, strides: str, count: int) -> bytes:
    """A file with a tensor of a storage of four numbers that is said to have ``count``."""
    content = file_of(b"}U\x01a" + tensor(shape, strides, count) + b"s", {"0": bytes(16)}, "old")
    return content[:-24] + count.to_bytes(8, "little") + bytes(16)


HOSTILE = {
    "numbers": (pickled(b"(" + b"K\x01" * 2**20 + b"l"), OBJECTS),
    "memo": (pickled(b"]" + MEMO), OBJECTS),
    "a place in the memo": (pickled(b"]r\xff\xff\xff\x7f"), "not a state dict but list"),
    "sets": (
        pickled(LIST + b"0](c__builtin__\nset\nq\1" + b"h\1h\0\x85R" * 200 + b"e"),
        "but list",
    ),
    "dicts": (pickled(PAIRS + b"0](" + ORDERED + b"h\1h\0\x85R" * 200 + b"e"), OBJECTS),
    "arguments": (pickled(LIST + b"0ca\nb\nq\1" + b"h\1h\0R" * 200), OBJECTS),
    "a long name": (
        pickled(b"X\xa0\x86\1\0" + b"a" * 10**5 + b"q\0" + b"h\0h\0\x93" * 999),
        OBJECTS,
    ),
    "keys": (pickled(b"}(" + NESTED + b"K\1u"), "'tuple' is int"),
    "keys that functions return": (pickled(b"(" + CALLS + b"1}(h\x62K\1u"), "'tuple' is int"),
    "a nested key": (pickled(b"}(N" + b"\x85" * 10**6 + b"K\x01u"), "'tuple' is int"),
    "a key of copies": (pickled(b"}K\1" + b"2\x86" * 100 + b"K\1s"), "the opcode DUP"),
    "a long number": (pickled(b"}\x8b\x10\x27\0\0" + b"\1" * 10**4 + b"K\1s"), "the opcode LONG4"),
    "the state of a function": (pickled(b"ctorch\nSize\n}b"), "not a state dict but torch.Size"),
    "text": (b"\x80\x04\x8d" + LARGE + b"a.", DAMAGED),
    "bytes": (b"\x80\x05\x96" + LARGE + b"a.", DAMAGED),
    "a frame": (b"\x80\x04\x95" + LARGE + b"].", "not a state dict but list"),
    "a registered class": (pickled(b"\x82\x01"), "the opcode EXT1"),
    "a storage": (
        hostile("2 2", "2 1", 2**60),
        "ends within an array of 1,152,921,504,606,846,976",
    ),
    "an expanded tensor": (hostile(SQUARE, "0 1", 4), "reaches beyond its storage"),
    "an expanded number": (
        hostile(SQUARE, "0 0", 4),
        r"a \(1048576, 1048576\) is expanded from a few",
    ),
    "strides": (hostile(f"{2**60} {2**60}", f"{2**60} 1", 4), "reaches beyond its storage"),
    "a negative size": (hostile("2 -2", "2 1", 4), "no valid shape and strides"),
    "axes": (hostile("1 " * 99, "1 " * 99, 4), DAMAGED),
    "an empty storage": (hostile("2 2", "2 1", 0), "reaches beyond its storage of 0 elements"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_take_neither_memory_nor_time(name, tmp_path, monkeypatch):
    path, (content, says), opcodes = tmp_path / "a.pth", HOSTILE[name], itertools.count()
    path.write_bytes(content)
    counted = lambda file, read=pickletools.genops: (
        item for item in read(file) if next(opcodes) + 1
    )
    monkeypatch.setattr(pickletools, "genops", counted)
    if len(content) < 10**5:  # otherwise it would take 10 s
        tracemalloc.start()
    with pytest.raises(ValueError, match=rf"^{path}: .*{says}"):
        read_state(path)
    assert tracemalloc.get_traced_memory()[1] < 100e6
    tracemalloc.stop()
    assert next(opcodes) <= 2**20 + 1


def test_entries_of_a_zip_file_that_overlap_are_refused(tmp_path):
    """A small file could contain one storage thousands of times."""
    path = tmp_path / "a.pth"
    tensors = (b"U\x01%d" % n + tensor("100", "1", 100, str(n)) for n in range(9))
    path.write_bytes(
        file_of(b"}(" + b"".join(tensors) + b"u", {str(n): bytes(400) for n in range(9)}, "zip")
    )
    assert len(read_state(path)) == 9
    with zipfile.ZipFile(path, "a") as archive:
        entries = {info.filename: info for info in archive.infolist()}
        for n in range(1, 9):
            entries[f"model/data/{n}"].header_offset = entries["model/data/0"].header_offset
        archive.start_dir, archive._didModify = entries["model/data/1"].header_offset, True
    with pytest.raises(ValueError, match="it is damaged"):
        read_state(path)


def test_a_file_is_read_into_its_own_memory(tmp_path):
    path, storages = tmp_path / "a.pth", {str(n): bytes(4 * 10**6) for n in range(6)}
    tensors = b"".join(b"U\x01%d" % n + tensor(f"{10**6}", "1", 10**6, str(n)) for n in range(6))
    for kind in ("zip", "old"):
        path.write_bytes(file_of(b"}(" + tensors + b"u", storages, kind))
        tracemalloc.start()
        read_checkpoint(path)
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size + 4e6
        tracemalloc.stop()


def test_arrays_of_numpy_in_a_pickle_are_named(tmp_path):
    path = tmp_path / "a.pkl"
    for protocol in range(6):
        path.write_bytes(pickle.dumps({"model": {"a": np.ones(2)}}, protocol))
        with pytest.raises(
            ValueError, match=r"'a' is numpy.*, which is not .*: save torch.from_nu"
        ):
            read_state(path)


def test_code_in_a_checkpoint_is_never_run(tmp_path):
    bomb, path = Bomb(tmp_path / "ran"), tmp_path / "bad.pth"
    beside = pickle.dumps(bomb, 2)[2:-1]
    state = b"}(U\x01a" + TENSORS["whole"][0] + b"U\x01b" + beside + b"u"
    path.write_bytes(
        file_of(b"}(U\x0astate_dict" + state + b"U\6config" + beside + b"u", DATA, "zip")
    )
    with pytest.warns(UserWarning, match=r"Ignored entries that are not arrays: b\."):
        assert list(read_state(path)) == ["a"]
    path.write_bytes(pickle.dumps({"state_dict": {"b": bomb}}))
    with pytest.raises(ValueError, match=r"the keys state_dict\. Choose one"):
        read_state(path)
    with pytest.raises(ValueError, match=r"'b' is \S+\. No .* export its state dict: torch.save\("):
        read_state(path, key="state_dict")
    path.write_bytes(pickle.dumps(bomb))
    with pytest.raises(ValueError, match=r"bad\.pth: not a model but"):
        read_state(path)
    assert not (tmp_path / "ran").exists()  # test_files.py shows that the payload would run


STARTS = {
    "a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n",
    "a web page": b"\n<!DOCTYPE html><html>404</html>",
    "an HDF5 file": b"\x89HDF\r\n\x1a\n" + bytes(99),
    "compressed with gzip": b"\x1f\x8b\x08" + bytes(99),
    "a tar file.*, 2017|a tar file": bytes(257) + b"ustar" + bytes(300),
    "one array of NumPy": b"\x93NUMPY\1\0" + bytes(99),
    DAMAGED: b"not a checkpoint" + b"<" * 300,
    "a JSON file": b'{"metadata": {}}',
    "an ONNX file": b"\x08\x08",
}
ENDINGS = {DAMAGED: ["a.h5"], "an ONNX file": ["a.onnx"]}


@pytest.mark.parametrize("says", STARTS)
def test_what_is_not_a_file_of_weights_is_named(says, tmp_path):
    for name in ENDINGS.get(says, ["a.pth", "a.safetensors"]):
        (tmp_path / name).write_bytes(STARTS[says])
        with pytest.raises(ValueError, match=rf"^[^\n]*{name}: it [^\n]*is ({says})[^\n]*$"):
            read_state(tmp_path / name)


def test_archives_and_wrong_endings(tmp_path):
    path = tmp_path / "a.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("folder/weights.pth", b"")
    with pytest.raises(
        ValueError, match=r"it is a zip file of folder/weights.pth. Unpack it, or pass"
    ):
        read_state(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a/data.pkl", b"")
        archive.writestr("a/constants.pkl", b"")
    with pytest.raises(
        ValueError, match=r"it is a TorchScript file. In .* torch.save\(model.state_dict"
    ):
        read_state(path)
    np.savez(tmp_path / "a.npz", a=np.ones(2))
    with pytest.raises(ValueError, match=r"it is a zip file of a.npy. .* pass dict\(numpy"):
        read_state(tmp_path / "a.npz")
    save_state(tmp_path / "b.safetensors", {"a": mx.ones(2, mx.bfloat16)}).rename(path)
    assert read_state(path)["a"].tolist() == [1, 1]
    path.write_bytes(tflite_of({"a": np.ones(2, np.float32)}))
    assert state_of(read_checkpoint(path))["a"].tolist() == [1, 1]
    for kind, content in (
        ("not a state dict but list", [1]),
        ("it is empty", {}),
        ("'epoch' is int", {"epoch": 3}),
    ):
        path.write_bytes(pickle.dumps(content))
        with pytest.raises(ValueError, match=rf"^{path}: .*{kind}.* torch.save\(model.state_dict"):
            read_state(path)


@pytest.mark.parametrize("name", ["a.pth", "a.safetensors", "a.tflite"])
def test_a_pipe_or_a_folder_is_refused(name, tmp_path):
    """Reading a pipe would wait for ever."""
    os.mkfifo(tmp_path / name)
    (tmp_path / "folder").mkdir()
    for path, kind in ((tmp_path / name, "a pipe or a device"), (tmp_path / "folder", "a folder")):
        for read in (read_state, read_tflite):
            with pytest.raises(ValueError, match=f"^{path}: it must be a file, but it is {kind}"):
                read(path)
    with pytest.raises(FileNotFoundError, match="missing"):
        read_state(tmp_path / "missing")


def test_a_key_chooses_a_state_dict(tmp_path):
    first, second = {"w": np.zeros((2, 3))}, {"w": np.ones((2, 3))}
    path = save_checkpoint(tmp_path / "a.pth", {"G": first, "runs": {"best": second}})
    assert read_state(path, key="G")["w"].max() == 0
    assert read_state(path, key="runs/best")["w"].min() == 1
    for key, says in (
        (
            None,
            r"no arrays under the usual keys .* but the keys G, runs\. Choose one with --key NAME",
        ),
        ("runs", r"but the keys best\. Choose"),
        ("D", r"there is no key 'D' but G, runs\."),
        ("G/w/x", r"there is no key 'x' but no other\."),
    ):
        with pytest.raises(ValueError, match=f"^{path}: .*{says}"):
            read_state(path, key=key)


def test_several_state_dicts_under_usual_keys_are_an_error(tmp_path):
    state = {"w": np.zeros((2, 3))}
    path = save_checkpoint(tmp_path / "a.pth", {"net": state, "state_dict": state})
    with pytest.raises(ValueError, match=r"has several state dicts, state_dict, net\. Choose one"):
        read_state(path)
    assert read_state(path, key="net")["w"].shape == (2, 3)


def test_compressed_entries_are_refused(tmp_path):
    """A small file could contain petabytes."""
    path = save_checkpoint(tmp_path / "a.pth", {"w": np.zeros((2, 3))})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/data/1", bytes(10**6))
    with pytest.raises(ValueError, match=r"it is compressed, which files of torch.save"):
        read_state(path)


def test_a_number_that_changed_in_a_zip_file_is_refused(tmp_path):
    path = save_checkpoint(tmp_path / "a.pth", {"w": np.full((2, 3), 1.5)})
    content = path.read_bytes()
    path.write_bytes(content.replace(np.float32(1.5).tobytes(), np.float32(2.5).tobytes(), 1))
    with pytest.raises(ValueError, match="it is damaged"):
        read_state(path)
