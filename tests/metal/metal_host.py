"""Compiles the exact source of Metal kernels for the CPU, runs it and checks every memory access.

MLX writes a kernel's full source when a call is traced for export, which needs no Metal
(``launches_of``). It compiles as C++14 with a replacement for Apple's headers (``shim/``) and MLX's
own Metal headers from the installed wheel. ``Run`` runs a launch in natural or shuffled order of
threads and reports accesses out of bounds, conflicts between threads, unwritten output bytes,
undefined behaviour and the 128-byte lines touched.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

HERE = Path(__file__).parent
MLX_INCLUDE = Path(mx.__file__).parent / "include"
COMPILER = "g++"
RUNS_HERE = sys.platform == "linux" and shutil.which(COMPILER) is not None
CACHE = Path(tempfile.gettempdir()) / f"mlx-unpool-kernels-{os.getuid()}"
FAILURES = ("no failure", "access out of bounds", "write to an input", "second write to one place")
FAILURES += (
    "read of an output",
    "atomic and plain access to one place",
    "undefined behaviour",
)  # of trace.cpp
TRAFFIC = ("bytes", "simd_lines", "group_lines", "unique_bytes")  # of a buffer in one direction
_NAMES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMPY = {getattr(mx, name): getattr(np, name) for name in ("float32", "float16", *_NAMES)}
NUMPY[mx.bfloat16] = np.uint16  # its bits
ALIGNMENT = 16  # bytes: the widest load of a GPU
CONSTANT_ALIGNMENT = 4  # bytes, of the start of a buffer in constant memory

_SIGNATURE = re.compile(r"\[\[kernel\]\] void (\w+)\(\n(.*?)\) \{\n", re.DOTALL)
_INSTANCE = re.compile(
    r'template \[\[host_name\("(\w+)"\)\]\] \[\[kernel\]\] (decltype\((\w+<[^>]*>)\) \3;)'
)
_KERNEL = re.compile(r"^(?:template <[^>]*>\n)?\[\[kernel\]\] void ", re.MULTILINE)
_PARAMETER = re.compile(
    r"^\s*(?P<type>.*?)(?P<reference>[*&]?)\s+(?P<name>\w+) "
    r"\[\[(?P<attribute>\w+)(?:\((?P<number>\d+)\))?\]\]$"
)


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, as MLX passes it to Metal."""

    name: str
    text: str
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]
    with_shape: tuple[bool, ...]  # for each input, whether its shape is passed
    init_value: float | None
    inputs: tuple[tuple[tuple[int, ...], mx.Dtype], ...]
    outputs: tuple[tuple[tuple[int, ...], mx.Dtype], ...]
    safe_math: bool = True  # whether the compiler must preserve comparisons such as v != v
    # how it is compiled here: counts of accesses need it, compiling takes longer
    optimised: bool = False

    @functools.cached_property
    def parameters(self) -> list[dict[str, str]]:
        """The parameters in the kernel's signature."""
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
        assert len(buffers) <= 31  # Metal's limit
        return [p["name"] for p in buffers]

    @functools.cached_property
    def array_numbers(self) -> list[int]:
        """The numbers of the buffers with the input arrays, between those with their shapes."""
        return [n + sum(self.with_shape[:n]) for n in range(len(self.inputs))]

    @functools.cached_property
    def constants(self) -> set[str]:
        """The names of the buffers in constant memory."""
        return {p["name"] for p in self.parameters if "constant" in p.get("type", "").split()}

    @property
    def contents(self) -> tuple:
        """Everything that MLX passes to Metal, but not the name."""
        return self.text, self.grid, self.threadgroup, self.inputs, self.outputs

    @property
    def threads(self) -> int:
        """The number of threads in the grid."""
        return prod(self.grid)

    @functools.cached_property
    def instance(self) -> str:
        """The kernel's name with its template arguments."""
        match = _INSTANCE.search(self.text)
        return match[3] if match else self.name

    @functools.cached_property
    def compiled_text(self) -> str:
        """The source, with template instances declared as in C++."""
        return _INSTANCE.sub(r"template \2", self.text)

    @functools.cached_property
    def header_and_kernel(self) -> tuple[str, str]:
        """The helper functions, which are the same in most sources, and the kernel."""
        text = self.compiled_text
        kernel = _KERNEL.search(text)
        assert kernel, text
        return text[: kernel.start()], text[kernel.start() :]


def launches_of(function: Any, *arrays: mx.array) -> tuple[list[Launch], list[dict]]:
    """The launches in the graph of ``function``, and all events of its export."""
    events: list[dict] = []
    mx.export_function(events.append, function, *arrays)
    launches = []
    for event in events:
        if event["type"] != "primitive" or event["name"] != "CustomKernel":
            continue
        name, text, *rest = event["arguments"]
        grid, threadgroup, shape_infos = rest[:3], rest[3:6], rest[6]
        assert not any(strides or rank for _, strides, rank in shape_infos)
        launches.append(
            Launch(
                name=name,
                text=text,
                grid=tuple(grid),
                # MLX clips a threadgroup to the grid.
                threadgroup=tuple(max(1, min(t, g)) for t, g in zip(threadgroup, grid)),
                with_shape=tuple(shape for shape, *_ in shape_infos),
                init_value=None,  # not part of the event
                inputs=tuple((tuple(shape), dtype) for _, shape, dtype in event["inputs"]),
                outputs=tuple((tuple(shape), dtype) for _, shape, dtype in event["outputs"]),
                safe_math=rest[-1] == 0,
            )
        )
    return launches, events


# ---- compiling


@functools.cache
def prelude() -> Path:
    """The folder of MLX's Metal header ``utils.h``, without mathematics.

    It has two edits that C++14 needs.
    """
    name = Path("mlx/backend/metal/kernels/utils.h")
    text = (MLX_INCLUDE / name).read_text().partition("inline float log1p(")[0]
    text = text.replace(
        "inline static constexpr constant complex_t", "static constexpr constant complex_t"
    )
    text = re.sub(
        r"constant const int64_t strides\[[23]\]", "constant const int64_t* strides", text
    )
    folder = CACHE / hashlib.sha256(text.encode()).hexdigest()[:16]
    _once(folder / name, lambda path: path.write_text(text))
    return folder


def include_flags() -> list[str]:
    """Compiler flags for the folders of headers: the replacements for Apple's, then MLX's."""
    return [f"-isystem{folder}" for folder in (HERE / "shim", prelude(), MLX_INCLUDE)]


_FLAGS = ["-std=c++14", "-fPIC", "-Werror=overflow", "-fsanitize=thread,undefined"]
_FLAGS += ["--param", "tsan-instrument-func-entry-exit=0"]
# The check of every access implies these, which take an eighth of the compiler's time.
_FLAGS += ["-fno-sanitize=vptr,null,pointer-overflow,object-size"]
# Otherwise GCC 16 moves a load into the branch that needs its value, and other compilers
# count more bytes.
_FLAGS += ["-fno-tree-sink"]
_PER_UNIT = 128  # kernels per translation unit: a fifth of the time of one by one
_functions: dict[tuple[str, bool], Any] = {}  # each runs the threads of a kernel


def _run_compiler(arguments: list[str]) -> None:
    result = subprocess.run([COMPILER, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, f"{COMPILER} {' '.join(arguments)}\n{result.stderr[:8000]}"


def _once(path: Path, make: Callable[[Path], object]) -> Path:
    """A file in the cache. It appears at once, because another process may read it."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        make(partial := path.with_suffix(f".{os.getpid()}"))
        partial.replace(path)
    return path


@functools.cache
def tracer() -> ctypes.CDLL:
    """The library of ``trace.cpp``, which is shared by all kernels."""
    source = HERE / "trace.cpp"
    command = ["-std=c++17", "-O2", "-fPIC", "-shared", str(source), "-o"]
    built = CACHE / f"trace-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
    library = ctypes.CDLL(str(_once(built, lambda path: _run_compiler([*command, str(path)]))))
    library.trace_allocate.restype = ctypes.c_void_p
    library.trace_allocate.argtypes = [ctypes.c_uint64] * 2
    library.trace_free.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.trace_end.restype = ctypes.c_uint64
    return library


@functools.cache
def _surroundings() -> bytes:
    """A hash of everything besides its source that a compiled kernel depends on."""
    own = [path for path in sorted(HERE.rglob("*")) if path.suffix in (".h", "") and path.is_file()]
    parts = [COMPILER, *_FLAGS, tracer()._name, str(prelude()), *(path.read_text() for path in own)]
    return hashlib.sha256("\0".join(parts).encode()).digest()


def _key(launch: Launch) -> str:
    text = f"{launch.optimised}{launch.compiled_text}"
    return hashlib.sha256(_surroundings() + text.encode()).hexdigest()[:24]


def compile_launches(launches: Iterable[Launch]) -> None:
    """Compile and load the kernels of these launches.

    Kernels that are not in the cache are compiled on all cores, several per translation unit. The
    cache has a symbolic link for each kernel to the library that contains it.
    """
    missing = [a for a in launches if (a.text, a.optimised) not in _functions]
    wanted = {_key(launch): launch for launch in sorted(missing, key=lambda a: a.name)}
    new = [(key, launch) for key, launch in wanted.items() if not (CACHE / f"{key}.so").exists()]
    cores = os.cpu_count() or 1
    each = max(1, min(_PER_UNIT, -(-len(new) // cores)))
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(_compile_unit, [new[i : i + each] for i in range(0, len(new), each)]))
    for key, launch in wanted.items():
        library = ctypes.CDLL(str((CACHE / f"{key}.so").resolve()))
        _functions[launch.text, launch.optimised] = library[f"run_{key}"]


def namespaces(launches: Iterable[Launch]) -> list[tuple[str, list[Launch]]]:
    """The sources of many kernels as C++ namespaces, each with its kernels.

    Kernels with the same header share a namespace: one copy of the header compiles in a fraction of
    the time.
    """
    groups: dict[tuple[str, int], list[Launch]] = {}
    names: Counter[tuple[str, str]] = Counter()
    for launch in launches:
        header, _ = launch.header_and_kernel
        groups.setdefault((header, names[header, launch.name]), []).append(launch)
        names[header, launch.name] += 1
    result = []
    for (header, _), group in groups.items():
        kernels = "\n".join(launch.header_and_kernel[1] for launch in group)
        result.append((f"{header}{kernels}\n#undef thread_position_in_grid", group))
    return result


def _unit_text(launches: Sequence[tuple[str, Launch]]) -> str:
    """A translation unit of several kernels, each with a function that runs a grid of it."""
    parts = ['#include "mlx/backend/metal/kernels/utils.h"']
    spaces: dict[int, str] = {}
    for text, group in namespaces(launch for _, launch in launches):
        space = f"unit_{_key(group[0])}"
        parts.append(f"namespace {space} {{\n{text}\n}}")
        spaces.update({id(launch): space for launch in group})
    parts.append('#include "walk.h"')
    for key, launch in launches:
        arguments = ["position"]  # the last parameter is the thread's position
        for p in reversed(launch.parameters[:-1]):
            dereference = "*" if p["reference"] == "&" else ""
            arguments.insert(0, f"{dereference}({p['type']}*)buffers[{p['number']}]")
        parts.append(
            f"UNSEEN static void thread_{key}(void** buffers, uint3 position) {{\n"
            f"  {spaces[id(launch)]}::{launch.instance}({', '.join(arguments)});\n}}\n"
            f'extern "C" UNSEEN void run_{key}(void** buffers, const uint32_t* grid, '
            f"const uint32_t* group,\n    const uint64_t* order, uint64_t count) {{\n"
            f"  walk(thread_{key}, buffers, grid, group, order, count);\n}}"
        )
    return "\n".join(parts)


def _compile_unit(launches: Sequence[tuple[str, Launch]]) -> None:
    keys = "".join(key for key, _ in launches)
    library = CACHE / f"unit-{hashlib.sha256(keys.encode()).hexdigest()[:24]}.so"
    source = library.with_suffix(f".{os.getpid()}.cpp")
    source.write_text(_unit_text(launches))
    compiled, partial = source.with_suffix(".o"), source.with_suffix(".so")
    (optimised,) = {launch.optimised for _, launch in launches}
    flags = ["-O1" if optimised else "-O0", *_FLAGS, *include_flags(), f"-I{HERE}"]
    # The linker must not see the sanitizers' flags: trace.cpp replaces their libraries.
    _run_compiler([*flags, "-c", str(source), "-o", str(compiled)])
    shared = ["-shared", "-nostdlib", str(compiled), tracer()._name, "-lgcc"]
    _run_compiler([*shared, "-o", str(partial)])
    partial.replace(library)
    source.unlink()
    compiled.unlink()
    for key, _ in launches:
        _once(CACHE / f"{key}.so", lambda path: path.symlink_to(library.name))


# ---- the memory of a launch


def _memory(x: mx.array) -> np.ndarray:
    return np.asarray(memoryview(x.view(mx.uint16) if x.dtype == mx.bfloat16 else x))


def _misalignment(view: np.ndarray) -> int:
    return view.__array_interface__["data"][0] % ALIGNMENT


@functools.cache
def _fresh() -> int:
    """The misalignment of MLX's new arrays on this machine: their size precedes them in memory."""
    found = {_misalignment(_memory(mx.zeros((n,), mx.uint8))) for n in (1, 2, 8, 100, 4096)}
    assert len(found) == 1, found
    return found.pop()


def offset_of(x: mx.array) -> int:
    """The number of bytes between a fully aligned address and this array, as a kernel receives it.

    MLX passes a row-contiguous array without a copy, wherever it begins in another array. It copies
    others.
    """
    if x.size == 0 or not (view := _memory(x)).flags.c_contiguous:
        return 0
    return (_misalignment(view) - _fresh()) % ALIGNMENT


# ---- running


@dataclass
class Report:
    """What a launch did."""

    failures: int = 0
    first: list[str] = field(default_factory=list)
    unwritten: dict[str, int] = field(default_factory=dict)  # bytes of each output
    traffic: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not self.failures and not self.unwritten


def _pointer(x: np.ndarray) -> ctypes.c_void_p:
    return x.ctypes.data_as(ctypes.c_void_p)


class Run:
    """A context in which the buffers of a launch are in memory and its threads can run."""

    def __init__(
        self, launch: Launch, arrays: Sequence[mx.array | None], shift: int | None = 0
    ) -> None:
        """``arrays``: the inputs; None stands for zeros that take no memory.

        ``shift``: how many elements after a fully aligned address each input begins; None for the
        offset of the array itself.
        """
        compile_launches([launch])
        self.launch = launch
        self.function = _functions[launch.text, launch.optimised]
        self.sizes: list[int] = []
        self.offsets: list[int] = []  # of each buffer, in bytes after a fully aligned address
        self.starts: list[int] = []
        for x, (shape, dtype), with_shape in zip(arrays, launch.inputs, launch.with_shape):
            constant = launch.buffers[len(self.starts)] in launch.constants
            offset = (0 if constant else shift) * dtype.size if shift is not None else offset_of(x)
            contents = None if x is None else np.ascontiguousarray(_memory(x))
            self._add(prod(shape) * dtype.size, contents, offset)
            if with_shape:
                self._add(4 * len(shape), np.array(shape, np.int32))
        self.input_count = len(self.starts)
        for shape, dtype in launch.outputs:
            value = launch.init_value
            contents = None if value is None else np.full(shape, value, NUMPY[dtype])
            self._add(prod(shape) * dtype.size, contents)

    def _add(self, size: int, contents: np.ndarray | None, offset: int = 0) -> None:
        base = tracer().trace_allocate(len(self.starts), size + offset)
        assert base, "the address range of a buffer is occupied"
        if contents is not None:
            ctypes.memmove(base + offset, contents.ctypes.data, size)
        self.sizes.append(size)
        self.offsets.append(offset)
        self.starts.append(base + offset)

    def walk(
        self,
        order: Sequence[int] | None,
        track: bool = True,
        count: bool = False,
        flush: bool = False,
    ) -> Report:
        """Run threads and report what they did.

        ``order`` contains their numbers; None runs all of them, in natural order.
        ``track`` checks for races and unwritten outputs, ``count`` counts the lines touched,
        ``flush`` treats 32-bit subnormal numbers as zero, as Apple's GPUs do.
        """
        number = len(self.sizes)
        role = 1 if self.launch.init_value is None else 2
        roles = bytes(0 if n < self.input_count else role for n in range(number))
        starts, sizes = np.array(self.starts, np.uint64), np.array(self.sizes, np.uint64)
        switches = int(track), int(count), int(flush)
        tracer().trace_begin(
            ctypes.c_uint64(number), _pointer(starts), _pointer(sizes), roles, *switches
        )
        grid, group = (
            np.array(axes, np.uint32) for axes in (self.launch.grid, self.launch.threadgroup)
        )
        if order is None:  # threadgroup by threadgroup
            at = np.unravel_index(np.arange(self.launch.threads), self.launch.grid[::-1])
            groups = [axis // n for axis, n in zip(at, self.launch.threadgroup[::-1])]
            order = np.lexsort((*at[::-1], *groups[::-1]))
        numbers = np.ascontiguousarray(order, np.uint64)
        self.function(*map(_pointer, (starts, grid, group, numbers)), ctypes.c_uint64(numbers.size))
        first, unwritten = np.zeros((8, 4), np.int64), np.zeros(number, np.uint64)
        traffic = np.zeros((number, 2, len(TRAFFIC)), np.uint64)
        results = map(_pointer, (first, traffic, unwritten))
        failures = tracer().trace_end(ctypes.c_uint64(len(first)), *results)
        names = self.launch.buffers
        misaligned = [
            f"constant input that is not 4-byte aligned: {name}, byte {offset}"
            for name, offset in zip(names, self.offsets)
            if name in self.launch.constants and offset % CONSTANT_ALIGNMENT
        ]
        said = (
            f"{FAILURES[kind]}: thread {thread}, {names[buffer]}, byte {offset}"
            for kind, thread, buffer, offset in first[:failures].tolist()
        )
        counted = {
            (name, direction): dict(zip(TRAFFIC, each))
            for name, both in zip(names, traffic.tolist())
            for direction, each in zip(("read", "write"), both)
            if any(each)
        }
        missing = {name: n for name, n in zip(names, unwritten.tolist()) if n}
        return Report(failures + len(misaligned), [*misaligned, *said], missing, counted)

    def elements(self, n: int, dtype: mx.Dtype) -> np.ndarray:
        """The elements of a buffer, in place."""
        memory = (ctypes.c_char * self.sizes[n]).from_address(self.starts[n])
        return np.frombuffer(memory, NUMPY[dtype])

    def outputs(self) -> list[mx.array]:
        """Copies of the outputs."""
        arrays = []
        for n, (shape, dtype) in enumerate(self.launch.outputs, self.input_count):
            x = mx.array(self.elements(n, dtype).reshape(shape))
            arrays.append(x.view(mx.bfloat16) if dtype == mx.bfloat16 else x)
        return arrays

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for start, size, offset in zip(self.starts, self.sizes, self.offsets):
            tracer().trace_free(start - offset, size + offset)
