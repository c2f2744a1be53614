"""The CUDA text that MLX would make of the kernels, and a compiler for it that needs no GPU.

``Recorder`` stands in for ``mx.fast.cuda_kernel``; ``text_of`` writes the text as MLX's
``mlx/backend/cuda/custom_kernel.cpp`` does; ``compile_text`` hands it to NVRTC with the options of MLX's
``jit_module.cpp``. MLX's own header is inside its library: what the kernels use of it stands in ``PRELUDE``.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlx_unpool import _backends
from mlx_unpool._backends import gpu

PRELUDE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/std/array>
#include <cuda/std/cstdint>
#include <cuda/std/limits>
using cuda::std::int8_t; using cuda::std::int16_t; using cuda::std::int32_t; using cuda::std::int64_t;
using cuda::std::uint8_t; using cuda::std::uint16_t; using cuda::std::uint32_t; using cuda::std::uint64_t;
namespace mlx::core::cu { using Shape = cuda::std::array<int32_t, 10>; }
#include <cooperative_groups.h>
"""
TYPES = {
    mx.float32: "float",
    mx.float16: "__half",
    mx.bfloat16: "__nv_bfloat16",
    **{
        getattr(mx, f"{sign}int{bits}"): f"{sign}int{bits}_t"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}


@dataclass(frozen=True)
class CudaLaunch:
    """One launch, as the package asked for it."""

    name: str
    header: str
    text: str
    grid: tuple[int, int, int]
    threadgroup: tuple[int, int, int]


class Recorder:
    """Notes launches and answers them with zeros."""

    def __init__(self) -> None:
        self.launches: list[CudaLaunch] = []

    @contextmanager
    def installed(self) -> Iterator[Recorder]:
        """In this context the library finds a CUDA device and uses it."""
        is_available, previous = _backends.is_available, mx.fast.cuda_kernel
        _backends.is_available = lambda name: name in ("ops", "cuda")
        mx.fast.cuda_kernel = self._make
        gpu._build.cache_clear()
        try:
            with _backends.use("cuda"):
                yield self
        finally:
            _backends.is_available, mx.fast.cuda_kernel = is_available, previous
            gpu._build.cache_clear()

    def _make(
        self,
        *,
        name: str,
        input_names: list[str],
        output_names: list[str],
        source: str,
        header: str,
    ) -> Callable[..., list[mx.array]]:
        def call(
            *,
            inputs: list[mx.array],
            template: list[tuple[str, Any]],
            grid: tuple[int, int, int],
            threadgroup: tuple[int, int, int],
            output_shapes: list[tuple[int, ...]],
            output_dtypes: list[mx.Dtype],
            init_value: float | None,
            stream: Any,
        ) -> list[mx.array]:
            arguments = []
            for parameter, x in zip(input_names, inputs, strict=True):
                arguments.append(f"const {TYPES[x.dtype]}* {parameter}")
                if f"{parameter}_shape" in source:
                    arguments.append(f"const __grid_constant__ Shape {parameter}_shape")
            for parameter, dtype in zip(output_names, output_dtypes, strict=True):
                arguments.append(f"{TYPES[dtype]}* {parameter}")
            self.launches.append(
                CudaLaunch(
                    name=f"custom_kernel_{name}{''.join(_hashed(value) for _, value in template)}",
                    header=header,
                    text=text_of(arguments, template, source),
                    grid=grid,
                    threadgroup=threadgroup,
                )
            )
            return [mx.zeros(s, d) for s, d in zip(output_shapes, output_dtypes, strict=True)]

        return call


def _hashed(value: Any) -> str:
    if isinstance(value, bool):
        return "_t" if value else "_f"
    return f"_{value}" if isinstance(value, int) else f"_{TYPES[value]}"


def text_of(arguments: list[str], template: list[tuple[str, Any]], source: str) -> str:
    """The kernel as MLX writes it, from its parameters on."""
    constants = []
    for name, value in template:
        if isinstance(value, bool):
            constants.append(f"  constexpr bool {name} = {str(value).lower()};")
        elif isinstance(value, int):
            constants.append(f"  constexpr int {name} = {value};")
        else:
            constants.append(f"  using {name} = {TYPES[value]};")
    joined = ",\n    ".join(arguments)
    return f"(\n    {joined}) {{\n" + "\n".join(constants) + f"\n\n{source}\n}}\n"


def unit_text(launches: list[CudaLaunch]) -> str:
    """Many kernels in one program, behind the header that they share."""
    (header,) = {launch.header for launch in launches}
    kernels = [f"__global__ void kernel_{n}{launch.text}" for n, launch in enumerate(launches)]
    return (
        f"{PRELUDE}\n{header}\nnamespace mlx::core::cu {{\nnamespace cg = cooperative_groups;\n"
        + "\n".join(kernels)
        + "\n}\n"
    )


# ---- NVRTC, from the packages nvidia-cuda-nvrtc, nvidia-cuda-runtime and nvidia-cuda-cccl of PyPI


def _installed(package: str, ending: str) -> Path | None:
    try:
        found = [path for path in files(package) or [] if str(path).endswith(ending)]
    except PackageNotFoundError:
        return None
    return Path(found[0].locate()) if found else None


@functools.cache
def compiler() -> tuple[ctypes.CDLL, list[str]] | None:
    """NVRTC and its include flags, or None where a package is missing."""
    library = next(
        (
            p
            for major in (13, 14, 12)
            if (p := _installed("nvidia-cuda-nvrtc", f"libnvrtc.so.{major}"))
        ),
        None,
    )
    header = _installed("nvidia-cuda-runtime", "include/cuda_fp16.h")
    standard = _installed("nvidia-cuda-cccl", "cuda/std/limits")
    if not (library and header and standard):
        return None
    folders = [header.parent, standard.parent.parent.parent]
    return ctypes.CDLL(str(library)), [f"--include-path={folder}" for folder in folders]


def compile_text(text: str, architecture: str) -> str:
    """Compiles a program for an architecture; returns the compiler's log, empty if it is content."""
    found = compiler()
    assert found
    nvrtc, include = found
    program = ctypes.c_void_p()
    assert not nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None
    )
    options = [
        "--device-as-default-execution-space",
        f"--gpu-architecture={architecture}",
        *include,
    ]
    array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), array)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    said = log.value.decode(errors="replace").strip()
    return (said or "failed without a word") if failed else ""
