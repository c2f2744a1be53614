"""Checks whether a kernel's source is valid Metal.

Apple's compiler runs on macOS only. These checks, each of which finds other mistakes, replace it:

- ``OpenCL``: clang (package ziglang), C++17 for OpenCL, the origin of Metal's address spaces; no
  pointers to functions, exceptions or virtual functions. Metal 4 (macOS 26) also uses C++17.
- ``pedantic``: g++, C++14; extensions of ISO C++ and promotions to double are errors.
- ``words``: what Metal forbids and the compilers above accept, such as a pointer without an address
  space.
- ``ASCII``: MLX decodes the source as ASCII, also the comments.
"""

import re
import subprocess
import sys
from collections.abc import Sequence

import metal_host
from metal_host import Launch

_OPENCL = (
    "-Wall -Wextra -Wno-unused -Wno-unused-parameter -Wno-unknown-attributes -Wno-sign-compare "
    "-Wno-duplicate-decl-specifier -Wno-unknown-pragmas -Wno-pass-failed "
    "-Wno-unknown-warning-option -fsyntax-only -ferror-limit=0 "
    "-x clcpp -cl-std=clc++2021 -cl-no-stdinc -nostdinc++ -cl-single-precision-constant"
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
    # Metal 4.1 needs an address space
    r"\bstruct \w+(?:<\w+>)? \{[^}]*\) (?:const )?\{": "member function",
    r"\bstatic\s+(?!constexpr|const\s+constant|constant|inline)\w+\s+\w+\s*=": "static variable",
    r"(?<![\w.])\d+\.\d*(?:[eE][-+]?\d+)?(?![\dfFhHeE]|bf)": (
        "floating-point literal without a suffix"
    ),
}
SPACES = re.compile(r"\b(device|thread|constant|threadgroup)\b")


def complaints(launches: Sequence[Launch]) -> dict[str, list[str]]:
    """The errors that each check finds in these kernels.

    An error in the first namespace (see ``metal_host.namespaces``) begins with KERNEL0, and so on.
    """
    sources = [source for source, _ in metal_host.namespaces(launches)]
    text = '#include "mlx/backend/metal/kernels/utils.h"\n' + "\n".join(
        f'namespace unit_{n} {{\n#line 1 "KERNEL{n}"\n{source}\n}}'
        for n, source in enumerate(sources)
    )
    return {
        "OpenCL": _errors([sys.executable, "-m", "ziglang", "clang", *_OPENCL.split()], text),
        "pedantic": _errors([metal_host.COMPILER, *_PEDANTIC.split()], text),
        "words": [f"KERNEL{n}: {word}" for n, s in enumerate(sources) for word in _words(s)],
        "ASCII": [f"KERNEL{n}: {c}" for n, s in enumerate(sources) for c in s if not c.isascii()],
    }


def _errors(command: list[str], text: str) -> list[str]:
    command = [*command, *metal_host.include_flags(), "-"]
    result = subprocess.run(command, input=text, capture_output=True, text=True)
    errors = [line for line in result.stderr.splitlines() if "error:" in line]
    assert errors or result.returncode == 0, result.stderr
    return errors


def _words(text: str) -> list[str]:
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    words = [name for pattern, name in WORDS.items() if re.search(pattern, code)]
    return words + _without_space(code)


def _without_space(code: str) -> list[str]:
    """Pointers without an address space, and variables at program scope that are not constant."""
    code = re.sub(r"<[^<>]*>", "", code)  # template arguments
    found = []
    for words in re.split(r"[,;{}=)]|\((?![*&])", code):  # of one declaration
        declares = re.search(r"\w[*&]+ *\w*\s*$|\w \([*&]", words)
        if declares and not SPACES.search(words):
            found.append(f"no address space: {words.strip()}")
    for line in re.findall(r"^\w[\w ]*\w \w+(?:\[\w*\])* *[=;].*", code, re.MULTILINE):
        if not re.search(r"\bconstant\b|^(?:using|typedef|template)\b", line):
            found.append(f"at program scope and not constant: {line}")
    return found
