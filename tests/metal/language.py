"""Is a kernel's text Metal? Judged by compilers for languages that Metal is close to, and by a list of words.

Metal is C++14 with address spaces and without some of the rest. No compiler for it runs outside Apple's
systems, so each of these looks at the text from one side:

- ``address spaces``: clang, C++14, ``device`` and ``constant`` as real address spaces; nothing newer.
- ``C++17``: the same as C++17, which Metal 4 (macOS 26) reads: other rules for templates, literals, copies.
- ``OpenCL``: clang, C++ for OpenCL, whose address spaces Metal's grew from; pointers need one, there is no
  recursion through pointers to functions, no exceptions, no ``virtual``.
- ``pedantic``: g++, C++14, with everything that is not ISO C++ or widens to double an error.
- ``words``: what neither of them forbids.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

import metal_host
from metal_host import Launch

_QUIET = [
    *("-Wall", "-Wextra", "-Wno-unused", "-Wno-unused-parameter", "-Wno-unknown-attributes"),
    *(
        "-Wno-duplicate-decl-specifier",
        "-Wno-sign-compare",
        "-Wno-unknown-pragmas",
        "-Wno-pass-failed",
    ),
    *("-Wno-unknown-warning-option", "-fsyntax-only"),
]
WORDS = {
    r"\bdouble\b": "double",
    r"\blong\s+long\b": "long long",
    r"\bstd::": "std::",
    r"\bgoto\b": "goto",
    r"\bnew\b|\bdelete\b": "new or delete",
    r"\bthrow\b|\btry\b|\bcatch\b": "exceptions",
    r"\bdynamic_cast\b|\btypeid\b": "run-time types",
    r"\bvirtual\b": "virtual",
    r"\bthread_local\b|\bregister\b": "storage class",
    r"\[\s*[&=]?\s*\]\s*\(": "lambda",
    r"\bif\s+constexpr\b": "if constexpr",
    r"\bnoexcept\b": "noexcept",
    r"\bstatic\s+(?!constexpr|const\s+constant|constant|inline)\w+\s+\w+\s*=": "static variable",
    r"(?<![\w.])\d+\.\d*(?:[eE][-+]?\d+)?(?![\dfFhHeE]|bf)": "floating-point literal without a suffix",
    r"\([^()]*\*\s*\w*\)\s*\(": "pointer to a function",
    r"\bprintf\b|\bassert\b": "printf or assert",
}


@functools.cache
def clang() -> tuple[str, ...] | None:
    """A clang of version 17 or later: on the machine, or in the ziglang package from PyPI."""
    for name in ("clang++", *(f"clang++-{version}" for version in range(25, 16, -1))):
        if shutil.which(name) and _version(name) >= 17:
            return (name,)
    if importlib.util.find_spec("ziglang"):
        return (sys.executable, "-m", "ziglang", "clang")
    return None


def _version(name: str) -> int:
    said = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)", said)
    return int(found[1]) if found else 0


def complaints(launches: Sequence[Launch]) -> dict[str, list[str]]:
    """What each judge has to say; an empty list is consent."""
    compiler = clang()
    assert compiler, "no clang"
    text = '#include "mlx/backend/metal/kernels/utils.h"\n' + "\n".join(
        f'namespace unit_{number} {{\n#line 1 "KERNEL"\n{launch.compiled_text}\n}}'
        for number, launch in enumerate(launches)
    )
    shim, opencl = metal_host.include_flags("shim"), metal_host.include_flags("shimcl")
    as_cpp = [*_QUIET, "-x", "c++", "-DMSL_CHECK", "-nostdinc++", "-fno-exceptions", "-fno-rtti"]
    as_cpp += ["-Werror=vla", "-Werror=address-of-temporary"]
    as_cpp_14 = [*as_cpp, "-std=c++14", "-Werror=c++17-extensions"]
    as_cpp_17 = [*as_cpp, "-std=c++17", "-Werror=c++20-extensions", "-Werror=register"]
    as_opencl = [*_QUIET, *("-x", "clcpp", "-cl-std=clc++2021", "-cl-no-stdinc", "-nostdinc++")]
    as_opencl += ["-cl-single-precision-constant"]
    pedantic = ["-std=c++14", "-fsyntax-only", "-fno-exceptions", "-fno-rtti", "-Wno-attributes"]
    pedantic += ["-Wpedantic", "-Werror=pedantic", "-Werror=vla", "-Werror=double-promotion"]
    pedantic += ["-fsingle-precision-constant", "-Wno-unknown-pragmas"]
    return {
        "address spaces": _errors([*compiler, *as_cpp_14, *shim, "-"], text),
        "C++17": _errors([*compiler, *as_cpp_17, *shim, "-"], text),
        "OpenCL": _errors([*compiler, *as_opencl, opencl[0], opencl[2], "-"], text)
        + _unqualified(compiler, [*as_opencl, opencl[0], opencl[2]], text),
        "pedantic": _errors([metal_host.COMPILER, *pedantic, *shim, "-x", "c++", "-"], text),
        "words": sorted({word for launch in launches for word in _words(launch.text)}),
    }


def _errors(command: list[str], text: str) -> list[str]:
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    errors = [line for line in result.stderr.splitlines() if "error:" in line]
    assert errors or result.returncode == 0, result.stderr
    return errors


def _words(text: str) -> list[str]:
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return [name for pattern, name in WORDS.items() if re.search(pattern, code)]


def _unqualified(compiler: Sequence[str], flags: list[str], text: str) -> list[str]:
    """Pointers and references of the kernels without an address space, which Metal insists on.

    C++ for OpenCL takes them for generic ones; its syntax tree shows that. So it does program-scope variables
    that are not ``constant``.
    """
    command = [*compiler, *flags, "-Xclang", "-ast-dump", "-fno-color-diagnostics", "-"]
    tree = subprocess.run(command, input=text, capture_output=True, text=True).stdout
    found, in_kernel = set(), False
    for line in tree.splitlines():
        location = re.search(r"<([^>]*)>", line)
        if location:  # a file is named where it changes
            if "KERNEL" in location[1]:
                in_kernel = True
            elif re.search(r"(\.h|<built-in>|<stdin>|metal_stdlib):\d", location[1]):
                in_kernel = False
        declares = re.search(r"\b(ParmVarDecl|VarDecl|FieldDecl|TypedefDecl|TypeAliasDecl)\b", line)
        if not in_kernel or not declares or " implicit " in line:
            continue
        named = re.search(r"(?:(\w+) )?'([^']*)'", line.split(">", 1)[-1])
        if not named:
            continue
        name, kind = named.groups()
        if name is None or name.isdigit() or name == "used":
            continue  # without a name: a parameter of a constructor that the compiler makes itself
        unsized = re.sub(
            r"\[[^]]*\]", "[]", kind
        )  # a product in the size of an array is no pointer
        to_arrays = re.search(r"\([*&][\w ]*\)\[\]", unsized)  # "T (*)[V]"
        for level in re.split(r"[*&]+", unsized)[:-1]:
            if "auto" in level or ("(" in level and not to_arrays):
                break
            spaced = re.search(r"__(global|constant|local|private)\b", level)
            if "__generic" in level or not spaced:
                found.add(f"no address space: {name}: {kind}")
                break
        at_program_scope = re.match(r"[|` ]*[|`]-VarDecl", line) and line.index("VarDecl") <= 4
        if at_program_scope and "__constant" not in kind:
            found.add(f"at program scope and not constant: {name}: {kind}")
    return sorted(found)
