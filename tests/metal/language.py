"""Checks whether a kernel's source is valid Metal.

Apple's compiler runs on macOS only. These checks, each of which finds other mistakes, replace it:

- ``OpenCL``: clang, C++17 for OpenCL, the origin of Metal's address spaces: every pointer needs one; no
  pointers to functions, exceptions or virtual functions. Metal 4 (macOS 26) also uses C++17.
- ``pedantic``: g++, C++14; extensions of ISO C++ and promotions to double are errors.
- ``words``: patterns that Metal forbids and the compilers above accept.
- ``ASCII``: MLX decodes the source as ASCII, also the comments.
"""

import functools
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence

import metal_host
from metal_host import Launch

_OPENCL = (
    "-Wall -Wextra -Wno-unused -Wno-unused-parameter -Wno-unknown-attributes -Wno-sign-compare "
    "-Wno-duplicate-decl-specifier -Wno-unknown-pragmas -Wno-pass-failed "
    "-Wno-unknown-warning-option -fsyntax-only -ferror-limit=0 "
    "-x clcpp -cl-std=clc++2021 -cl-no-stdinc -nostdinc++ -cl-single-precision-constant "
    "-Xclang -ast-dump -fno-color-diagnostics"
)
_PEDANTIC = (
    "-x c++ -std=c++14 -fsyntax-only -fno-exceptions -fno-rtti -Wno-attributes -Wpedantic "
    "-Werror=pedantic -Werror=c++17-extensions -Werror=vla -Werror=double-promotion "
    "-fsingle-precision-constant -Wno-unknown-pragmas"
)
WORDS = {
    r"\bdouble\b": "double",
    r"\blong\s+long\b": "long long",
    r"\bgoto\b": "goto",
    r"\[\s*[&=]?\s*\]\s*\(": "lambda",
    r"\bnoexcept\b": "noexcept",
    r"\bstatic\s+(?!constexpr|const\s+constant|constant|inline)\w+\s+\w+\s*=": "static variable",
    r"(?<![\w.])\d+\.\d*(?:[eE][-+]?\d+)?(?![\dfFhHeE]|bf)": "floating-point literal without a suffix",
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
    """The errors that each check finds in these kernels.

    An error in the first namespace (see ``metal_host.namespaces``) begins with KERNEL0, and so on.
    """
    compiler = clang()
    assert compiler, "no clang"
    sources = [source for source, _ in metal_host.namespaces(launches)]
    text = '#include "mlx/backend/metal/kernels/utils.h"\n' + "\n".join(
        f'namespace unit_{n} {{\n#line 1 "KERNEL{n}"\n{source}\n}}' for n, source in enumerate(sources)
    )
    opencl, tree = _errors([*compiler, *_OPENCL.split()], text)
    return {
        "OpenCL": opencl + _unqualified(tree),
        "pedantic": _errors([metal_host.COMPILER, *_PEDANTIC.split()], text)[0],
        "words": [f"KERNEL{n}: {word}" for n, s in enumerate(sources) for word in _words(s)],
        "ASCII": [f"KERNEL{n}: {c}" for n, s in enumerate(sources) for c in s if not c.isascii()],
    }


def _errors(command: list[str], text: str) -> tuple[list[str], str]:
    """A compiler's errors and its output."""
    command = [*command, *metal_host.include_flags(), "-"]
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    errors = [line for line in result.stderr.splitlines() if "error:" in line]
    assert errors or result.returncode == 0, result.stderr
    return errors, result.stdout


def _words(text: str) -> list[str]:
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return [name for pattern, name in WORDS.items() if re.search(pattern, code)]


def _unqualified(tree: str) -> list[str]:
    """Pointers and references of the kernels without an address space, which Metal requires.

    C++ for OpenCL makes them generic pointers, which its syntax tree shows. The tree also shows program-scope
    variables that are not ``constant``.
    """
    found, kernel = set(), ""
    for line in tree.splitlines():
        location = re.search(r"<([^>]*)>", line)
        if location:  # contains the file only where it changes
            if inside := re.search(r"KERNEL\d+", location[1]):
                kernel = inside[0]
            elif re.search(r"(\.h|<built-in>|<stdin>|metal_stdlib):\d", location[1]):
                kernel = ""
        declares = re.search(r"\b(ParmVarDecl|VarDecl|FieldDecl|TypedefDecl|TypeAliasDecl)\b", line)
        if not kernel or not declares or " implicit " in line:
            continue
        named = re.search(r"(?:(\w+) )?'([^']*)'", line.split(">", 1)[-1])
        if not named or named[1] in (None, "used") or named[1].isdigit():
            continue  # an unnamed parameter of a constructor that the compiler generates
        name, kind = named.groups()
        # Without the sizes of arrays, which may contain a product: * means a pointer.
        unsized = re.sub(r"\[[^]]*\]", "[]", kind)
        to_arrays = re.search(r"\([*&][\w ]*\)\[\]", unsized)  # "T (*)[V]"
        for level in re.split(r"[*&]+", unsized)[:-1]:
            if "auto" in level or ("(" in level and not to_arrays):
                break
            spaced = re.search(r"__(global|constant|local|private)\b", level)
            if "__generic" in level or not spaced:
                found.add(f"{kernel}: no address space: {name}: {kind}")
                break
        at_program_scope = re.match(r"[|` ]*[|`]-VarDecl", line) and line.index("VarDecl") <= 4
        if at_program_scope and "__constant" not in kind:
            found.add(f"{kernel}: at program scope and not constant: {name}: {kind}")
    return sorted(found)
