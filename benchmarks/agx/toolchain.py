"""Compiles a kernel's Metal source to machine code of Apple's G13 GPU.

With ``metal_in_opencl.h`` the unchanged Metal source is C++ for OpenCL. clang and LLVM compile it to SPIR-V,
and ``agx_offline`` compiles that to machine code. ``agx_offline`` is Mesa's compiler with a main function
(``recipe/``).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import machine

HERE = Path(__file__).parent
PACKED = HERE.parents[2] / "shared" / "agx" / "toolchain.tar.xz"
MISSING = (
    "no compiler for Apple's GPUs: build one with benchmarks/agx/recipe/setup.sh "
    "and set AGX_TOOLS to its folder"
)
HEADER = HERE / "metal_in_opencl.h"

_CLANG = [
    *("-x", "clcpp", "-cl-std=CLC++2021", "--target=spir64-unknown-unknown", "-emit-llvm", "-c"),
    *("-w", "-Xclang", "-finclude-default-header", "-Xclang", "-fdeclare-opencl-builtins"),
    *("-ffp-contract=off", "-fno-vectorize", "-fno-slp-vectorize", "-fno-discard-value-names"),
    *("-g0", "-O2", "-Xclang", "-disable-llvm-passes"),
]
_TIDY = "instcombine<no-verify-fixpoint>"
# LLVM's passes before Mesa's compiler. "llvm": full unrolling and the usual scalar passes, but no
# vectorizers, no lookup tables (their types, such as i4, are not SPIR-V) and no 64-bit loop counters.
# "none": loops are kept, except those that Mesa unrolls.
PASSES = {
    "none": "always-inline,cgscc(inline),globaldce",
    "llvm": (
        "always-inline,cgscc(inline),globaldce,"
        f"function(sroa,early-cse,simplifycfg,{_TIDY},simplifycfg),"
        f"function(loop-mssa(loop-rotate,licm),simplifycfg,{_TIDY},"
        "loop(loop-idiom,loop-deletion,loop-unroll-full),"
        f"sroa,early-cse<memssa>,simplifycfg,{_TIDY},gvn,sccp,correlated-propagation,bdce,{_TIDY},"
        f"adce,simplifycfg,{_TIDY},loop-mssa(licm),loop(loop-unroll-full),sroa,gvn,{_TIDY},"
        f"correlated-propagation,{_TIDY},correlated-propagation,simplifycfg,dce),globaldce"
    ),
}
_UNROLL = 1500  # LLVM's default is 150 to 300; compilers for GPUs use more
# A thread position has 64 bits in OpenCL and 32 in Metal. LLVM must not see the wide one, or it would divide
# in 64 bits.
_POSITION = """declare spir_func i64 @_Z13get_global_idj(i32)
define spir_func i32 @msl_position(i32 %axis) {
  %wide = call spir_func i64 @_Z13get_global_idj(i32 %axis)
  %narrow = trunc i64 %wide to i32
  ret i32 %narrow
}"""


@functools.cache
def tools() -> Path | None:
    """The folder of the tools: ``AGX_TOOLS``, or the archive next to the checkout, unpacked once."""
    if "AGX_TOOLS" in os.environ:
        folder = Path(os.environ["AGX_TOOLS"])
        return folder if (folder / "bin" / "agx_offline").exists() else None
    if not PACKED.exists():
        return None
    name = f"agx-toolchain-{os.getuid()}-{PACKED.stat().st_size}"
    folder = Path(tempfile.gettempdir()) / name
    if not (folder / "toolchain" / "bin" / "agx_offline").exists():
        partial = Path(tempfile.mkdtemp(dir=folder.parent))
        subprocess.run(["tar", "xf", PACKED, "-C", partial], check=True)
        try:
            partial.rename(folder)
        except OSError:  # another process has unpacked it
            subprocess.run(["rm", "-r", partial], check=True)
    return folder / "toolchain"


def missing() -> str | None:
    """Why machine code cannot be compiled on this machine, in one line, or None."""
    return None if tools() else MISSING


def _tool(name: str, *arguments: object, stdin: str = "", **environment: str) -> tuple[bytes, str]:
    """Runs one of the tools. Returns its output and its messages."""
    folder = tools()
    assert folder, MISSING
    command = [str(folder / "bin" / name), *map(str, arguments)]
    result = subprocess.run(
        command, input=stdin.encode(), capture_output=True, env={**os.environ, **environment}
    )
    said = result.stderr.decode()
    assert result.returncode == 0, f"{' '.join(command)}\n{said[-4000:]}"
    return result.stdout, said


def opencl_text(launches: Sequence[Any]) -> str:
    """The kernels of launches (``metal_host.Launch``) as one program. Kernel n is called ``kn``."""
    parts = [HEADER.read_text()]
    for number, launch in enumerate(launches):
        text = re.sub(r"template decltype\(.*?;\n?", "", launch.compiled_text)
        text = text.replace("[[kernel]] void", "METAL_FUNC void")
        text = re.sub(r" \[\[\w+(\(\d+\))?\]\]", "", text)  # [[buffer(n)]] and the like
        formal, actual = zip(*map(_parameter, launch.parameters))
        group = ", ".join(map(str, launch.threadgroup))
        # Each kernel has a namespace, because the source of every kernel contains the same helpers.
        parts.append(
            f"namespace unit_{number} {{\n{text}\n}}\n"
            f"__kernel __attribute__((reqd_work_group_size({group}))) "
            f"void k{number}({', '.join(filter(None, formal))}) {{\n"
            f"  unit_{number}::{launch.instance}({', '.join(actual)});\n}}"
        )
    return "\n".join(parts)


def _parameter(parameter: dict[str, str]) -> tuple[str, str]:
    """The declaration of a kernel parameter in OpenCL, and the argument for the Metal function."""
    kind, name = parameter["type"], parameter["name"]
    if parameter["attribute"] == "thread_position_in_grid":
        return "", "(uint3)(msl_position(0), msl_position(1), msl_position(2))"
    if parameter["attribute"] != "buffer":
        raise NotImplementedError(parameter["attribute"])
    if found := re.search(r"atomic<(\w+)>", kind):
        return f"device {found[1]}* {name}", f"(device atomic<{found[1]}>*){name}"
    kind = kind.replace("const constant", "constant const")
    return f"{kind}* {name}", f"*{name}" if parameter["reference"] == "&" else name


class Compiled:
    """The machine code of several launches, and Mesa's statistics about it."""

    def __init__(self, launches: Sequence[Any], passes: str = "llvm") -> None:
        self._number = {launch.text: n for n, launch in enumerate(_distinct(launches))}
        self._kernels: dict[str, machine.Kernel] = {}
        self._statistics: list[dict[str, int]] = []
        if self._number:
            dump, said = _machine_code(_distinct(launches), passes)
            self._kernels = machine.parse(dump)
            self._statistics = machine.statistics(said)

    def kernel(self, launch: Any) -> machine.Kernel:
        """The machine code of a launch."""
        return self._kernels[f"k{self._number[launch.text]}"]

    def statistics(self, launch: Any) -> dict[str, int]:
        """Mesa's statistics: inst, bytes, regs, threads, spills, fills, scratch, loops, ..."""
        return self._statistics[self._number[launch.text]]


def _distinct(launches: Sequence[Any]) -> list[Any]:
    return list({launch.text: launch for launch in launches}.values())


def _machine_code(launches: Sequence[Any], passes: str) -> tuple[str, str]:
    with tempfile.TemporaryDirectory(prefix="agx-") as folder:
        path = Path(folder) / "kernels"
        source, first, bitcode, spirv = (
            path.with_suffix(s) for s in (".clcpp", ".0", ".bc", ".spv")
        )
        source.write_text(opencl_text(launches))
        found = tools()
        assert found, MISSING
        _tool("clang", "-resource-dir", found / "clang", *_CLANG, source, "-o", first)
        text = _tool("llvm-dis", first, "-o", "-")[0].decode()
        # As in Apple's data layout, 32 bits are the widest native integer.
        text = re.sub(r"^(target datalayout.*?)-G1", r"\1-n8:16:32-G1", text, flags=re.MULTILINE)
        limits = ("-inline-threshold=1000000", f"-unroll-threshold={_UNROLL}")
        text = _tool("opt", "-S", *limits, f"-passes={PASSES[passes]}", "-", "-o", "-", stdin=text)[
            0
        ].decode()
        # llvm-spirv converts get_global_id and atomics to SPIR-V instructions only in OpenCL C.
        lines = [line for line in text.splitlines() if not line.startswith("!opencl.cxx.version")]
        text = re.sub(
            r"^declare .*@msl_position\(.*$", _POSITION, "\n".join(lines), flags=re.MULTILINE
        )
        _tool("llvm-as", "-", "-o", bitcode, stdin=text)
        _tool("llvm-spirv", "--spirv-max-version=1.4", bitcode, "-o", spirv)
        dump, said = _tool("agx_offline", spirv, AGX_DUMP="1", AGX_MESA_DEBUG="shaderdb,internal")
        return dump.decode(), said


@functools.cache
def version() -> str:
    """A hash of everything except the kernels that determines machine code and counts."""
    found = tools()
    assert found, MISSING
    parts = [path.read_bytes() for path in sorted(HERE.glob("*.[ph]*"))]
    parts.append(str((found / "bin" / "agx_offline").stat().st_size).encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
