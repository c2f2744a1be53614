"""The CUDA text that MLX would make of the kernels, and NVIDIA's compiler for it, which needs no GPU.

``Recorder`` stands in for ``mx.fast.cuda_kernel`` and keeps every launch. ``Launch.text`` is, character by
character, what MLX's ``mlx/backend/cuda/custom_kernel.cpp`` builds, and ``compile_text`` hands it to NVRTC
with the options of MLX's ``jit_module.cpp``. MLX's own header is not part of a CPU build: ``UTILS`` declares
what a signature needs of it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import platform
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlx_unpool import _backends
from mlx_unpool._backends import gpu

UTILS_NAME = "mlx/backend/cuda/device/utils.cuh"
UTILS = """
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/std/array>
#include <cuda/std/limits>
namespace mlx::core::cu {
using Shape = cuda::std::array<int32_t, 10>;
using Strides = cuda::std::array<int64_t, 10>;
}
"""
PREAMBLE = f'\n#include "{UTILS_NAME}"\n\n#include <cooperative_groups.h>\n\n'
OPENING = "namespace mlx::core::cu {\n\nnamespace cg = cooperative_groups;\n\n"
CLOSING = "\n} // namespace mlx::core::cu\n"

# A dtype in the text of a kernel, and in the name of one.
_INTEGERS = {
    getattr(mx, f"{sign}int{bits}"): f"{sign}int{bits}_t"
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}
TYPES = {mx.float32: "float", mx.float16: "__half", mx.bfloat16: "__nv_bfloat16", **_INTEGERS}
NAMES = {mx.float32: "float", mx.float16: "float16_t", mx.bfloat16: "bfloat16_t", **_INTEGERS}

Triple = tuple[int, int, int]
Outputs = tuple[tuple[tuple[int, ...], mx.Dtype], ...]


@dataclass(frozen=True)
class Launch:
    """One launch, as the package asked for it."""

    body: str  # "pool", "place", ...
    header: str
    function: str
    template: tuple[tuple[str, Any], ...]
    grid: Triple
    threadgroup: Triple

    @property
    def text(self) -> str:
        """What MLX compiles for this launch."""
        return PREAMBLE + self.header + OPENING + self.function + CLOSING

    @property
    def block(self) -> Triple:
        """The threads of a block: no more than the grid has."""
        return tuple(min(n, of) for n, of in zip(self.threadgroup, self.grid, strict=True))

    @property
    def blocks(self) -> Triple:
        """The number of blocks: the grid rounded up."""
        return tuple(-(-n // of) for n, of in zip(self.grid, self.threadgroup, strict=True))


class Recorder:
    """Keeps launches and answers them with zeros."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []

    @contextmanager
    def installed(self) -> Iterator[Recorder]:
        """In this context the library finds a CUDA device and uses it."""
        is_available, previous = _backends.is_available, mx.fast.cuda_kernel
        _backends.is_available = lambda name: name in ("ops", "cuda")
        mx.fast.cuda_kernel = self._make
        gpu._build.cache_clear()
        try:
            with _backends.use_backend("cuda"):
                yield self
        finally:
            _backends.is_available, mx.fast.cuda_kernel = is_available, previous
            gpu._build.cache_clear()

    # Both signatures are those of MLX, less what the library has no use for.
    def _make(
        self,
        *,
        name: str,
        input_names: list[str],
        output_names: list[str],
        source: str,
        header: str = "",
    ) -> Callable[..., list[mx.array]]:
        def call(
            *,
            inputs: list[mx.array],
            output_shapes: list[tuple[int, ...]],
            output_dtypes: list[mx.Dtype],
            grid: Triple,
            threadgroup: Triple,
            template: list[tuple[str, bool | int | mx.Dtype]],
            init_value: float | None = None,
            stream: Any = None,
        ) -> list[mx.array]:
            signature = [
                *_inputs(input_names, inputs, source),
                *_outputs(output_names, output_dtypes),
            ]
            full_name = "custom_kernel_" + name + "".join(_hashed(value) for _, value in template)
            function = _function(full_name, signature, template, source)
            body = name.removeprefix("unpool_")
            launch = Launch(body, header, function, tuple(template), grid, threadgroup)
            self.launches.append(launch)
            outputs = tuple(zip(map(tuple, output_shapes), output_dtypes, strict=True))
            return self.answer(launch, inputs, outputs, init_value)

        return call

    def answer(
        self, launch: Launch, inputs: list[mx.array], outputs: Outputs, init_value: float | None
    ) -> list[mx.array]:
        """What the library gets for a launch."""
        return [mx.zeros(shape, dtype) for shape, dtype in outputs]


def _hashed(value: bool | int | mx.Dtype) -> str:
    if isinstance(value, bool):
        return "_t" if value else "_f"
    return f"_{value}" if isinstance(value, int) else f"_{NAMES[value]}"


def _inputs(names: list[str], inputs: list[mx.array], source: str) -> Iterator[str]:
    for name, x in zip(names, inputs, strict=True):
        yield f"const {TYPES[x.dtype]}* {name}"
        if x.ndim > 0:
            for kind, suffix in (("Shape", "_shape"), ("Strides", "_strides"), ("int", "_ndim")):
                if name + suffix in source:
                    yield f"const __grid_constant__ {kind} {name}{suffix}"


def _outputs(names: list[str], dtypes: list[mx.Dtype]) -> Iterator[str]:
    for name, dtype in zip(names, dtypes, strict=True):
        yield f"{TYPES[dtype]}* {name}"


def _function(
    name: str, signature: list[str], template: list[tuple[str, bool | int | mx.Dtype]], source: str
) -> str:
    constants = ""
    for key, value in template:
        if isinstance(value, bool):
            constants += f"  constexpr bool {key} = {str(value).lower()};\n"
        elif isinstance(value, int):
            constants += f"  constexpr int {key} = {value};\n"
        else:
            constants += f"  using {key} = {TYPES[value]};\n"
    parameters = ",\n".join(f"    {parameter}" for parameter in signature)
    return f"__global__ void {name}(\n{parameters}) {{\n{constants}\n{source}\n}}\n"


def unit(launches: list[Launch]) -> str:
    """The kernels of many launches as one program, which takes a fraction of the time of one by one.

    A message about one of them names it by its place in the list: ``3(20): error: ...``.
    """
    (header,) = {launch.header for launch in launches}
    functions = (f'#line 1 "{n}"\n{launch.function}' for n, launch in enumerate(launches))
    return PREAMBLE + header + OPENING + "\n".join(functions) + CLOSING


# ---- NVRTC, from the packages nvidia-cuda-nvrtc, nvidia-cuda-runtime and nvidia-cuda-cccl of PyPI


def _installed(package: str, part: str) -> Path | None:
    """The file of an installed package whose path has ``part`` in it."""
    try:
        found = sorted(path for path in files(package) or [] if part in str(path))
    except PackageNotFoundError:
        return None
    return Path(found[0].locate()) if found else None


@functools.cache
def compiler() -> tuple[ctypes.CDLL, tuple[str, ...]] | None:
    """NVRTC and its include options, or None where a package is missing."""
    library = _installed("nvidia-cuda-nvrtc", "/libnvrtc.so.")
    runtime = _installed("nvidia-cuda-runtime", "/include/cuda_fp16.h")
    standard = _installed("nvidia-cuda-cccl", "/cuda/std/limits")
    if sys.platform != "linux" or not (library and runtime and standard):
        return None
    folders = (standard.parents[2], runtime.parent)
    return ctypes.CDLL(str(library)), tuple(f"--include-path={folder}" for folder in folders)


def compiler_missing() -> str | None:
    """Why there is no compiler, if there is none."""
    if compiler() is not None:
        return None
    return f"NVRTC is not here (extra 'cuda-check'; {sys.platform}, {platform.machine()})"


def compile_text(text: str, architecture: str, *options: str) -> tuple[bool, str]:
    """Compiles a program for ``architecture``: whether that went well, and what the compiler said."""
    binary, said = _compile(text, architecture, *options)
    return binary is not None, said


def _compile(text: str, architecture: str, *options: str) -> tuple[bytes | None, str]:
    """The machine code of a program, or None, and what the compiler said."""
    found = compiler()
    assert found
    nvrtc, include = found

    def check(status: int) -> None:
        assert status == 0, nvrtc.nvrtcGetErrorString(status).decode()

    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    program = ctypes.c_void_p()
    check(
        nvrtc.nvrtcCreateProgram(
            *(ctypes.byref(program), text.encode(), b"kernels.cu", 1),
            (ctypes.c_char_p * 1)(UTILS.encode()),
            (ctypes.c_char_p * 1)(UTILS_NAME.encode()),
        )
    )
    try:
        arguments = [
            "--device-as-default-execution-space",
            f"--gpu-architecture={architecture}",
            *include,
            *options,
        ]
        array = (ctypes.c_char_p * len(arguments))(*(word.encode() for word in arguments))
        status = nvrtc.nvrtcCompileProgram(program, len(arguments), array)
        size = ctypes.c_size_t()
        check(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
        log = ctypes.create_string_buffer(size.value)
        check(nvrtc.nvrtcGetProgramLog(program, log))
        code = ctypes.create_string_buffer(0)
        if not status:
            check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
            code = ctypes.create_string_buffer(size.value)
            check(nvrtc.nvrtcGetCUBIN(program, code))
    finally:
        check(nvrtc.nvrtcDestroyProgram(ctypes.byref(program)))
    said = log.value.decode(errors="replace").strip()
    if status:
        said = said or nvrtc.nvrtcGetErrorString(status).decode()
    return None if status else code.raw, said


# ---- NVIDIA's disassembler, from the package nvidia-cuda-nvdisasm


def disassembler() -> Path | None:
    """The program, where it is installed."""
    return _installed("nvidia-cuda-nvdisasm", "/bin/nvdisasm")


def memory_instructions(launches: list[Launch], architecture: str) -> list[Counter[str]]:
    """For each launch its loads and stores, by width: ``load 16`` moves 16 bytes.

    ``local`` counts those of local memory, where a thread has what finds no room in registers.
    """
    program = disassembler()
    assert program
    # Each function gets a name of its own; text alike may have been launched with several grids.
    named = [
        dataclasses.replace(launch, function=launch.function.replace("void ", f"void n{n}_", 1))
        for n, launch in enumerate(launches)
    ]
    code, said = _compile(unit(named), architecture, "--diag-suppress=177,128,186")
    assert code is not None, said
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        result = subprocess.run(
            [program, "--print-code", file.name], capture_output=True, text=True, check=True
        )
    counts: list[Counter[str]] = [Counter() for _ in launches]
    now: Counter[str] | None = None
    for line in result.stdout.splitlines():
        if found := re.match(r"\s*\.section\s+\.text\.\w*?n(\d+)_custom_kernel", line):
            now = counts[int(found[1])]
        elif found := re.search(r"\b(LDG|STG)\.E((?:\.\w+)*)", line):
            words = found[2].split(".")
            bits = next((int(w) for w in words if w in ("64", "128")), 32)
            bits = next((int(w[1:]) for w in words if w in ("U8", "S8", "U16", "S16")), bits)
            assert now is not None, line
            now[f"{'load' if found[1] == 'LDG' else 'store'} {bits // 8}"] += 1
        elif re.search(r"\b(LDL|STL)\b", line):
            assert now is not None, line
            now["local"] += 1
    return counts
