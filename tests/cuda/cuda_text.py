"""The kernels as CUDA: the source that MLX generates, compiled by NVIDIA's compiler.

``Recorder`` replaces ``mx.fast.cuda_kernel`` and records launches. ``unit`` is, but for the names
of kernels, the source that MLX's ``mlx/backend/cuda/custom_kernel.cpp`` generates. ``compile_text``
compiles it with NVRTC, which needs no GPU, and the options of MLX's ``jit_module.cpp``. A CPU build
of MLX does not contain its CUDA header, so ``UTILS`` declares what a signature needs of it.
"""

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

sys.path.insert(0, str(Path(__file__).parent.parent / "metal"))

import emulator

UTILS_NAME = "mlx/backend/cuda/device/utils.cuh"
UTILS = """
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/std/array>
#include <cuda/std/limits>
namespace mlx::core::cu {
using Shape = cuda::std::array<int32_t, 10>;
}
"""
PREAMBLE = f'\n#include "{UTILS_NAME}"\n\n#include <cooperative_groups.h>\n\n'
OPENING = "namespace mlx::core::cu {\n\nnamespace cg = cooperative_groups;\n\n"
CLOSING = "\n} // namespace mlx::core::cu\n"
TYPES = {mx.float32: "float", mx.float16: "__half", mx.bfloat16: "__nv_bfloat16"}
TYPES |= {getattr(mx, f"{u}int{n}"): f"{u}int{n}_t" for u in ("", "u") for n in (8, 16, 32, 64)}

# ---- launches

Triple = tuple[int, int, int]


def blocks_of(grid: Triple, threadgroup: Triple) -> tuple[Triple, Triple]:
    """The number of blocks and of their threads.

    MLX clips a block to the grid and rounds the grid up.
    """
    blocks = tuple(-(-n // of) for n, of in zip(grid, threadgroup, strict=True))
    return blocks, tuple(map(min, threadgroup, grid))


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch on CUDA, and its kernel's source: ``header`` and ``function``.

    All kernels share the header.
    """

    body: str  # the name of the kernel's file
    header: str
    function: str
    template: tuple[tuple[str, Any], ...]
    grid: Triple
    threadgroup: Triple


class Recorder:
    """A CUDA device that records launches; no kernel runs."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []

    def installed(self) -> AbstractContextManager[None]:
        """A context in which the library finds this device and uses it."""
        return emulator.installed("cuda", self._make)

    def _make(self, *, name, input_names, output_names, source, header) -> Callable[..., Any]:
        def call(
            *, inputs, output_shapes, output_dtypes, grid, threadgroup, template, **_
        ) -> list[mx.array]:
            signature = []
            for name_, x in zip(input_names, inputs, strict=True):
                signature.append(f"const {TYPES[x.dtype]}* {name_}")
                if x.ndim > 0 and f"{name_}_shape" in source:
                    signature.append(f"const __grid_constant__ Shape {name_}_shape")
            for name_, dtype in zip(output_names, output_dtypes, strict=True):
                signature.append(f"{TYPES[dtype]}* {name_}")
            blocks, block = blocks_of(grid, threadgroup)
            launch = Launch(
                body=name.removeprefix("unpool_"),
                header=header,
                function=_function(f"{name}_{len(self.launches)}", signature, template, source),
                template=tuple(template),
                grid=tuple(n * of for n, of in zip(blocks, block)),  # CUDA runs whole blocks
                threadgroup=block,
            )
            self.launches.append(launch)
            return [mx.zeros(shape, dtype) for shape, dtype in zip(output_shapes, output_dtypes)]

        return call


def _function(name: str, signature: list[str], template: list[tuple[str, Any]], source: str) -> str:
    constants = ""
    for key, value in template:
        if isinstance(value, (bool, int)):
            constants += f"  constexpr {type(value).__name__} {key} = {str(value).lower()};\n"
        else:
            constants += f"  using {key} = {TYPES[value]};\n"
    return f"__global__ void {name}({', '.join(signature)}) {{\n{constants}\n{source}\n}}\n"


def unit(launches: Sequence[Launch]) -> str:
    """The kernels of many launches as one program, which compiles much faster than one by one.

    A message about a kernel begins with its number in the list: ``3(20): error: ...``.
    """
    (header,) = {launch.header for launch in launches}
    functions = (f'#line 1 "{n}"\n{launch.function}' for n, launch in enumerate(launches))
    return PREAMBLE + header + OPENING + "\n".join(functions) + CLOSING


# ---- NVRTC, from the packages nvidia-cuda-nvrtc, nvidia-cuda-runtime and nvidia-cuda-cccl of PyPI


@functools.cache
def compiler() -> tuple[ctypes.CDLL, tuple[str, ...]] | None:
    """NVRTC and its include options, or None if a package is missing."""
    folders = [Path(path, "nvidia") for path in sys.path]
    names = "libnvrtc.so.*", "include/cuda_fp16.h", "cuda/std/limits"
    found = [[path for folder in folders for path in folder.glob(f"**/{name}")] for name in names]
    if sys.platform != "linux" or not all(found):
        return None
    library, runtime, standard = (paths[0] for paths in found)
    include = (standard.parents[2], runtime.parent)
    return ctypes.CDLL(str(library)), tuple(f"--include-path={folder}" for folder in include)


def compile_text(text: str, architecture: str, *options: str) -> tuple[bytes | None, str]:
    """The machine code of a program, None if it does not compile, and the compiler's messages."""
    found = compiler()
    assert found
    nvrtc, include = found
    program = ctypes.c_void_p()

    def run(name: str, *arguments: Any) -> int:
        status = getattr(nvrtc, f"nvrtc{name}")(*arguments)
        assert status == 0 or name == "CompileProgram", (name, status)
        return status

    def result(name: str) -> bytes:
        size = ctypes.c_size_t()
        run(f"Get{name}Size", program, ctypes.byref(size))
        contents = ctypes.create_string_buffer(size.value)
        run(f"Get{name}", program, contents)
        return contents.raw

    def strings(*words: str) -> ctypes.Array:
        return (ctypes.c_char_p * len(words))(*(word.encode() for word in words))

    source = text.encode(), b"kernels.cu", 1, strings(UTILS), strings(UTILS_NAME)
    run("CreateProgram", ctypes.byref(program), *source)
    arguments = ["--device-as-default-execution-space", f"--gpu-architecture={architecture}"]
    arguments += [*include, *options]
    failed = run("CompileProgram", program, len(arguments), strings(*arguments))
    said = result("ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
    code = None if failed else result("CUBIN")
    run("DestroyProgram", ctypes.byref(program))
    return code, said
