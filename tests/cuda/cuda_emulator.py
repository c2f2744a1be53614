"""A CUDA device made of CPU: the text that MLX hands to NVIDIA's compiler, run and watched as Metal's is.

``tests/metal/metal_host.py`` compiles it as C++ and walks the grid; ``WORDS`` has what it takes from CUDA.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cuda_text
import mlx.core as mx

sys.path.insert(0, str(Path(__file__).parent.parent / "metal"))

import emulator
import metal_host

from mlx_unpool._backends import gpu

WORDS = """
typedef half __half;
typedef bfloat __nv_bfloat16;
typedef const int32_t* Shape; // as kernels use it
#define __global__ inline
#define __grid_constant__
inline __half __float2half(float value) { return __half(value); }
inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline int32_t __float_as_int(float value) { return as_type<int32_t>(value); }
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
inline uint32_t atomicOr(uint32_t* word, uint32_t bits) {
  auto atomic = (metal::atomic<uint32_t>*)word;
  return metal::atomic_fetch_or_explicit(atomic, bits, metal::memory_order_relaxed);
}
inline int32_t atomicMax(int32_t* number, int32_t least) {
  auto atomic = (metal::atomic<int32_t>*)number;
  return metal::atomic_fetch_max_explicit(atomic, least, metal::memory_order_relaxed);
}
namespace cuda { namespace std { using metal::numeric_limits; } }
"""
# What a thread knows of itself, and where the walk over the grid has it.
ATTRIBUTES = {
    "blockIdx": "threadgroup_position_in_grid",
    "threadIdx": "thread_position_in_threadgroup",
    "blockDim": "threads_per_threadgroup",
}


@dataclass(frozen=True)
class Launch(metal_host.Launch):
    """A launch on CUDA, described as one on Metal."""

    @functools.cached_property
    def parameters(self) -> list[dict[str, str]]:
        found = re.search(rf"void {self.name}\(\n(.*?)\) {{\n", self.text, re.DOTALL)
        assert found, self.text
        parameters = [{"attribute": attribute} for attribute in ATTRIBUTES.values()]
        for number, line in enumerate(found[1].split(",\n")):
            kind, name = line.strip().rsplit(" ", 1)
            kind = "const int32_t" if kind.endswith(" Shape") else kind.removesuffix("*")
            kind = kind.replace("__half", "half").replace("__nv_bfloat16", "bfloat")
            buffer = {"attribute": "buffer", "number": str(number), "name": name}
            parameters.append({**buffer, "type": kind, "reference": ""})
        return parameters

    @property
    def instance(self) -> str:
        return self.name

    @property
    def compiled_text(self) -> str:
        own = "".join(f"uint3 {name}, " for name in ATTRIBUTES)
        text = self.text.replace(f"void {self.name}(", f"void {self.name}({own}")
        return f"{WORDS}{text}\n#undef thread_position_in_grid"


class Emulator(cuda_text.Recorder):
    """Runs every launch, or with ``record`` only notes it. One that is not clean fails the test."""

    def __init__(self, edit: Callable[[str], str] = lambda text: text) -> None:
        super().__init__()
        self.edit = edit
        self.record = False
        self.shift: int | None = None  # how many elements behind full alignment inputs begin
        self.must_be_clean = True
        self.watched: list[Launch] = []
        self.reports: list[metal_host.Report] = []

    def answer(
        self,
        launch: cuda_text.Launch,
        inputs: list[mx.array],
        outputs: cuda_text.Outputs,
        init_value: float | None,
    ) -> list[mx.array]:
        (names,) = (kernel.inputs for kernel in gpu.KERNELS if kernel.name == launch.body)
        watched = Launch(
            name=launch.function.split("(")[0].removeprefix("__global__ void "),
            text=self.edit(launch.header + launch.function),
            # CUDA runs whole blocks.
            grid=tuple(n * of for n, of in zip(launch.blocks, launch.block, strict=True)),
            threadgroup=launch.block,
            shape_infos=tuple((f"Shape {n}_shape" in launch.function, False, False) for n in names),
            init_value=init_value,
            inputs=tuple((tuple(x.shape), x.dtype) for x in inputs),
            outputs=outputs,
        )
        self.watched.append(watched)
        if self.record or not emulator.known(inputs):
            return super().answer(launch, inputs, outputs, init_value)
        results, report = metal_host.run(watched, inputs, shift=self.shift)
        self.reports.append(report)
        if self.must_be_clean:
            assert report.clean, f"{watched.name}: {report.first} unwritten: {report.unwritten}"
        return results


def compile_all(calls: list[Callable[[], object]]) -> None:
    """Compiles the kernels of all calls together, which takes a fraction of the time of one by one."""
    recorder = Emulator()
    recorder.record = True
    with recorder.installed():
        for call in calls:
            mx.eval(call())
    metal_host.compile_launches(recorder.watched)
