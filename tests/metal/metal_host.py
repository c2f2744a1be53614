"""Runs the exact text of Metal kernels on the CPU, and watches what they do to memory.

MLX writes a kernel's text when a launch is traced for export, which needs no Metal (``launches_of``).
That text compiles as C++14 behind a small shim for Apple's headers (``shim/``), together with MLX's own
Metal prelude from the installed wheel. ``run`` walks the grid, in natural or shuffled order, and reports
every access out of bounds, every conflict between threads, every output byte left unwritten, every
undefined behaviour, and the 128-byte lines touched.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

HERE = Path(__file__).parent
MLX_INCLUDE = Path(mx.__file__).parent / "include"
COMPILER = os.environ.get("CXX", "g++")
CACHE = Path(tempfile.gettempdir()) / f"mlx-unpool-kernels-{os.getuid()}"
FAILURES = (
    "no failure",
    "access out of bounds",
    "write to an input",
    "second write to one place",
    "read of another thread's write",
    "write over another thread's read",
    "read before any write",
    "atomic and plain access to one place",
    "undefined behaviour",
)
NUMPY = {
    mx.float32: np.float32,
    mx.float16: np.float16,
    mx.bfloat16: np.uint16,  # its bits
    mx.int8: np.int8,
    mx.int16: np.int16,
    mx.int32: np.int32,
    mx.int64: np.int64,
    mx.uint8: np.uint8,
    mx.uint16: np.uint16,
    mx.uint32: np.uint32,
    mx.uint64: np.uint64,
}

# The parts of MLX's text that have to be found in it.
_SIGNATURE = re.compile(r"\[\[kernel\]\] void (\w+)\(\n(.*?)\) \{\n", re.DOTALL)
_INSTANCE = re.compile(
    r'template \[\[host_name\("(\w+)"\)\]\] \[\[kernel\]\] (decltype\((\w+<[^>]*>)\) \3;)'
)
_PARAMETER = re.compile(
    r"^\s*(?P<type>.*?)(?P<reference>[*&]?)\s+(?P<name>\w+) "
    r"\[\[(?P<attribute>\w+)(?:\((?P<number>\d+)\))?\]\]$"
)


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, as MLX would hand it to Metal."""

    name: str
    text: str
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    shape_infos: tuple[tuple[bool, bool, bool], ...]
    init_value: float | None
    inputs: tuple[tuple[tuple[int, ...], mx.Dtype], ...]
    outputs: tuple[tuple[tuple[int, ...], mx.Dtype], ...]
    safe_math: bool = True  # whether the compiler must leave v != v as it is

    @functools.cached_property
    def parameters(self) -> list[dict[str, str]]:
        """The kernel's parameters, as its signature has them."""
        signature = _SIGNATURE.search(self.text)
        assert signature, self.text
        assert signature[1] == self.name
        matches = [_PARAMETER.match(line) for line in signature[2].split(",\n")]
        assert all(matches), signature[2]
        return [match.groupdict() for match in matches if match]

    @functools.cached_property
    def buffers(self) -> list[str]:
        """The names of the buffers, in the order of their numbers."""
        buffers = [p for p in self.parameters if p["attribute"] == "buffer"]
        assert [int(p["number"]) for p in buffers] == list(range(len(buffers)))
        assert len(buffers) <= 31  # Metal has no more
        return [p["name"] for p in buffers]

    @functools.cached_property
    def instance(self) -> str:
        """The kernel's name with its template arguments."""
        match = _INSTANCE.search(self.text)
        return match[3] if match else self.name

    @functools.cached_property
    def compiled_text(self) -> str:
        """The text, less Metal's way to name an instance of a template."""
        return _INSTANCE.sub(r"template \2", self.text)


def launches_of(function: Any, *arrays: mx.array) -> tuple[list[Launch], dict[str, mx.array], list]:
    """The launches in the graph of ``function``, the constants in it and every event of the trace."""
    events: list[dict] = []
    mx.export_function(events.append, function, *arrays)
    constants: dict[str, mx.array] = {}
    launches = []
    for event in events:
        if event["type"] == "constants":
            constants.update(event["constants"])
        if event["type"] != "primitive" or event["name"] != "CustomKernel":
            continue
        name, text, *rest = event["arguments"]
        grid, threadgroup, shape_infos = rest[:3], rest[3:6], rest[6]
        launches.append(
            Launch(
                name=name,
                text=text,
                grid=tuple(grid),
                # MLX makes a threadgroup no larger than the grid.
                threadgroup=tuple(max(1, min(t, g)) for t, g in zip(threadgroup, grid)),
                shape_infos=tuple(map(tuple, shape_infos)),
                init_value=None,  # MLX leaves it out of the event
                inputs=tuple((tuple(shape), dtype) for _, shape, dtype in event["inputs"]),
                outputs=tuple((tuple(shape), dtype) for _, shape, dtype in event["outputs"]),
                safe_math=rest[-1] == 0,
            )
        )
    return launches, constants, events


# ---- compiling


@functools.cache
def prelude() -> Path:
    """MLX's Metal prelude, from the installed wheel, with two edits that C++14 needs."""
    name = Path("mlx/backend/metal/kernels/utils.h")
    text = (MLX_INCLUDE / name).read_text()
    text = text.replace(
        "inline static constexpr constant complex_t", "static constexpr constant complex_t"
    )
    text = re.sub(
        r"constant const int64_t strides\[[23]\]", "constant const int64_t* strides", text
    )
    folder = CACHE / hashlib.sha256(text.encode()).hexdigest()[:16]
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


def include_flags(shim: str = "shim") -> list[str]:
    """Where headers are found: the shim, the edited prelude, MLX."""
    return [f"-isystem{folder}" for folder in (HERE / shim, prelude(), MLX_INCLUDE)]


def compiler_missing() -> str | None:
    """Why kernels cannot be compiled here, or None."""
    return None if shutil.which(COMPILER) else f"no C++ compiler: {COMPILER} was not found"


_FLAGS = ["-std=c++14", "-O1", "-fPIC", "-w", "-fsanitize=thread,undefined", "-fno-sanitize=vptr"]
_PER_UNIT = 12  # kernels compiled together take less than half of the time of one by one
_libraries: dict[str, tuple[ctypes.CDLL, str]] = {}


def _run_compiler(arguments: list[str]) -> None:
    result = subprocess.run([COMPILER, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, f"{COMPILER} {' '.join(arguments)}\n{result.stderr[:8000]}"


@functools.cache
def _tracer() -> Path:
    source = HERE / "trace.cpp"
    built = CACHE / f"trace-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.o"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        partial = built.with_suffix(f".{os.getpid()}")
        _run_compiler(["-std=c++17", "-O2", "-fPIC", "-c", str(source), "-o", str(partial)])
        partial.replace(built)
    return built


@functools.cache
def _surroundings() -> bytes:
    """A hash of all that the machine code of a kernel depends on besides its text."""
    own = [path for path in sorted(HERE.rglob("*")) if path.suffix in (".h", "") and path.is_file()]
    parts = [COMPILER, *_FLAGS, str(_tracer()), str(prelude()), *(path.read_text() for path in own)]
    return hashlib.sha256("\0".join(parts).encode()).digest()


def _key(launch: Launch) -> str:
    return hashlib.sha256(_surroundings() + launch.compiled_text.encode()).hexdigest()[:24]


def compile_launches(launches: Iterable[Launch]) -> None:
    """Makes the kernels of these launches ready to run.

    What this machine has not compiled before is compiled now, several kernels a unit, on every core. Each
    kernel is kept by its own text: a link of its name to the library of the unit that it was compiled in.
    """
    wanted = {_key(launch): launch for launch in launches if launch.text not in _libraries}
    new = [(key, launch) for key, launch in wanted.items() if not (CACHE / f"{key}.so").exists()]
    cores = os.cpu_count() or 1
    each = max(1, min(_PER_UNIT, -(-len(new) // cores)))
    with ThreadPoolExecutor(cores) as pool:
        for _ in pool.map(_compile_unit, [new[i : i + each] for i in range(0, len(new), each)]):
            pass
    for key, launch in wanted.items():
        library = ctypes.CDLL(str((CACHE / f"{key}.so").resolve()))
        library.trace_allocate.restype = ctypes.c_void_p
        library.trace_allocate.argtypes = [ctypes.c_uint64] * 2
        library.trace_free.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        library.trace_end.restype = ctypes.c_uint64
        _libraries[launch.text] = (library, f"run_{key}")


def unit_text(launches: Sequence[tuple[str, Launch]]) -> str:
    """One translation unit of several kernels, each with a name and a function that walks a grid."""
    parts = ['#include "mlx/backend/metal/kernels/utils.h"']
    for key, launch in launches:
        # The same helpers stand in front of every kernel: a namespace for each keeps them apart.
        parts.append(f"namespace unit_{key} {{\n{launch.compiled_text}\n}}")
    parts.append('#include "walk.h"')
    for key, launch in launches:
        arguments = []
        for parameter in launch.parameters:
            if parameter["attribute"] != "buffer":
                arguments.append(f"attributes.{parameter['attribute']}")
                continue
            dereference = "*" if parameter["reference"] == "&" else ""
            arguments.append(f"{dereference}({parameter['type']}*)buffers[{parameter['number']}]")
        parts.append(
            f"UNSEEN static void thread_{key}(void** buffers, const Attributes& attributes) {{\n"
            f"  unit_{key}::{launch.instance}({', '.join(arguments)});\n}}\n"
            f'extern "C" UNSEEN void run_{key}(void** buffers, const uint32_t* grid, '
            f"const uint32_t* group,\n    const uint64_t* order, uint64_t count) {{\n"
            f"  walk(thread_{key}, buffers, grid, group, order, count);\n}}"
        )
    return "\n".join(parts)


def _compile_unit(launches: Sequence[tuple[str, Launch]]) -> None:
    keys = "".join(key for key, _ in launches)
    library = CACHE / f"unit-{hashlib.sha256(keys.encode()).hexdigest()[:24]}.so"
    source = library.with_suffix(f".{os.getpid()}.cpp")
    source.write_text(unit_text(launches))
    compiled, partial = source.with_suffix(".o"), source.with_suffix(".so")
    flags = [*_FLAGS, *include_flags(), f"-I{HERE}"]
    if "clang" not in COMPILER:
        flags += ["--param", "tsan-instrument-func-entry-exit=0"]
    _run_compiler([*flags, "-c", str(source), "-o", str(compiled)])
    _run_compiler(["-shared", str(compiled), str(_tracer()), "-o", str(partial), "-lpthread"])
    partial.replace(library)
    source.unlink()
    compiled.unlink()
    for key, _ in launches:
        link = library.with_name(f"{key}.{os.getpid()}")
        link.symlink_to(library.name)
        link.replace(CACHE / f"{key}.so")


# ---- running


@dataclass
class Report:
    """What a launch did."""

    failures: int = 0
    first: list[str] = field(default_factory=list)
    unwritten: dict[str, int] = field(default_factory=dict)
    traffic: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not self.failures and not self.unwritten


class _Failure(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint64),
        ("thread", ctypes.c_uint64),
        ("buffer", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
    )


class _Traffic(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("bytes", "simd_lines", "group_lines", "unique_bytes")
    )


def buffer_of(x: mx.array) -> np.ndarray:
    """An array's numbers as a kernel finds them in memory."""
    return np.ascontiguousarray(np.array(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x))


def array_of(buffer: np.ndarray, dtype: mx.Dtype) -> mx.array:
    """The array that a kernel left in memory."""
    return mx.array(buffer).view(mx.bfloat16) if dtype == mx.bfloat16 else mx.array(buffer)


def input_buffers(launch: Launch, arrays: Sequence[mx.array | None]) -> list[np.ndarray | int]:
    """The input buffers of a launch: arrays and, where the text asks, their shapes, strides and ranks.

    Of an array that is None only the size in bytes is given.
    """
    buffers: list[np.ndarray | int] = []
    for x, (shape, dtype), wants in zip(arrays, launch.inputs, launch.shape_infos):
        if x is None:
            buffers.append(int(np.prod(shape, dtype=np.int64)) * np.dtype(NUMPY[dtype]).itemsize)
        else:
            buffers.append(buffer_of(x))
        # MLX hands over arrays whose rows are contiguous, so the shape says all.
        strides = [int(np.prod(shape[n + 1 :], dtype=np.int64)) for n in range(len(shape))]
        described = (np.array(shape, np.int32), np.array(strides, np.int64), np.int32([len(shape)]))
        buffers += [part for part, wanted in zip(described, wants) if wanted]
    return buffers


ALIGNMENT = 16  # bytes: the widest load of a GPU


def _address(x: mx.array) -> int:
    view = np.asarray(memoryview(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x))
    return view.__array_interface__["data"][0]


@functools.cache
def _fresh() -> int:
    """Where MLX begins new arrays on this machine, against full alignment: it puts their size in front."""
    found = {_address(mx.zeros((n,), mx.uint8)) % ALIGNMENT for n in (1, 2, 8, 100, 4096)}
    assert len(found) == 1, found
    return found.pop()


def offset_of(x: mx.array) -> int:
    """How many bytes behind an address of full alignment a kernel finds this array.

    MLX hands a kernel the array itself if its rows are contiguous, wherever in another array it begins, and a
    fresh copy otherwise.
    """
    if x.size == 0:
        return 0
    view = np.asarray(memoryview(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x))
    if not view.flags.c_contiguous:
        return 0
    return (view.__array_interface__["data"][0] - _fresh()) % ALIGNMENT


def input_offsets(launch: Launch, arrays: Sequence[mx.array], shift: int | None) -> list[int]:
    """For each input buffer of a launch, the bytes that it begins behind full alignment."""
    offsets = []
    for x, wants in zip(arrays, launch.shape_infos):
        offsets.append(offset_of(x) if shift is None else shift * x.dtype.size)
        offsets += [0] * sum(wants)
    return offsets


class Run:
    """A launch on its way: buffers in the arena, then threads, then a report."""

    def __init__(
        self,
        launch: Launch,
        inputs: Sequence[np.ndarray | int],
        offsets: Sequence[int] | None = None,
    ) -> None:
        """``offsets``: how many bytes behind an address of full alignment each input begins."""
        compile_launches([launch])
        self.launch = launch
        self.library, self.function = _libraries[launch.text]
        outputs = [
            int(np.prod(shape, dtype=np.int64)) * np.dtype(NUMPY[dtype]).itemsize
            for shape, dtype in launch.outputs
        ]
        self.input_count = len(inputs)
        self.sizes = [x if isinstance(x, int) else x.nbytes for x in inputs] + outputs
        self.offsets = [*(offsets or [0] * len(inputs)), *([0] * len(outputs))]
        bases = [
            self.library.trace_allocate(n, size + offset)
            for n, (size, offset) in enumerate(zip(self.sizes, self.offsets))
        ]
        assert all(bases), "no room in the address space"
        self.starts = [base + offset for base, offset in zip(bases, self.offsets)]
        for start, x in zip(self.starts, inputs):
            if not isinstance(x, int):
                ctypes.memmove(start, x.ctypes.data, x.nbytes)
        if launch.init_value is not None:
            for start, size, (_, dtype) in zip(
                self.starts[self.input_count :], outputs, launch.outputs
            ):
                filled = np.full(
                    size // np.dtype(NUMPY[dtype]).itemsize, launch.init_value, NUMPY[dtype]
                )
                ctypes.memmove(start, filled.ctypes.data, size)

    def walk(
        self,
        order: Sequence[int] | None,
        track: bool = True,
        count: bool = False,
        flush: bool = False,
    ) -> Report:
        """Runs threads and reports. ``order`` names some or all of them; None is all, as they come.

        ``track`` looks for races and unwritten outputs, ``count`` counts the lines touched, ``flush`` takes
        32-bit subnormal numbers for zero, as Apple's GPUs do.
        """
        number = len(self.sizes)
        role = 1 if self.launch.init_value is None else 2
        roles = bytes([0] * self.input_count + [role] * (number - self.input_count))
        starts = (ctypes.c_void_p * number)(*self.starts)
        self.library.trace_begin(
            ctypes.c_uint64(number),
            starts,
            (ctypes.c_uint64 * number)(*self.sizes),
            roles,
            int(track),
            int(count),
            int(flush),
        )
        numbers = None if order is None else np.ascontiguousarray(order, np.uint64)
        getattr(self.library, self.function)(
            starts,
            (ctypes.c_uint32 * 3)(*self.launch.grid),
            (ctypes.c_uint32 * 3)(*self.launch.threadgroup),
            None if numbers is None else numbers.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_uint64(0 if numbers is None else numbers.size),
        )
        first, traffic = (_Failure * 8)(), (_Traffic * (2 * number))()
        unwritten = (ctypes.c_uint64 * number)()
        failures = self.library.trace_end(first, ctypes.c_uint64(8), traffic, unwritten)
        names = self.launch.buffers
        report = Report(failures=failures)
        for f in first[: min(failures, 8)]:
            report.first.append(
                f"{FAILURES[f.kind]}: thread {f.thread}, {names[f.buffer]}, byte {f.offset}"
            )
        report.unwritten = {name: n for name, n in zip(names, unwritten) if n}
        for n, name in enumerate(names):
            for direction, t in (("read", traffic[2 * n]), ("write", traffic[2 * n + 1])):
                if t.bytes:
                    report.traffic[name, direction] = {
                        key: getattr(t, key) for key, _ in _Traffic._fields_
                    }
        return report

    def outputs(self) -> list[mx.array]:
        """The outputs, copied out of the arena."""
        arrays = []
        for start, size, (shape, dtype) in zip(
            self.starts[self.input_count :], self.sizes[self.input_count :], self.launch.outputs
        ):
            buffer = np.frombuffer(ctypes.string_at(start, size), NUMPY[dtype]).reshape(shape)
            arrays.append(array_of(buffer.copy(), dtype))
        return arrays

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for start, size, offset in zip(self.starts, self.sizes, self.offsets):
            self.library.trace_free(start - offset, size + offset)


def run(
    launch: Launch,
    arrays: Sequence[mx.array],
    *,
    shuffle: int | None = None,
    count: bool = False,
    flush: bool = False,
    shift: int | None = None,
) -> tuple[list[mx.array], Report]:
    """Runs a whole launch, in an order drawn with the seed ``shuffle`` or as the threads come.

    Each input begins where the array itself begins against full alignment (:func:`offset_of`) or, with
    ``shift``, that many elements behind it, as a part of a larger array may.
    """
    threads = int(np.prod(launch.grid, dtype=np.int64))
    order = None if shuffle is None else np.random.default_rng(shuffle).permutation(threads)
    offsets = input_offsets(launch, arrays, shift)
    with Run(launch, input_buffers(launch, arrays), offsets) as running:
        report = running.walk(order, count=count, flush=flush)
        return running.outputs(), report
