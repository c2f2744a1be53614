"""The kernels are valid Metal as far as ``language.py`` can tell.

It finds mistakes in small kernels.
"""

import re

import emulator
import language
import mlx.core as mx
import pytest
from metal_host import Launch
from support.kernel_cases import CHOSEN_CALLS

pytest.importorskip("ziglang")
pytestmark = pytest.mark.external


def covering(launches: list[Launch]) -> list[Launch]:
    """Launches with every parameter type and template argument of each kernel in the list."""
    seen: set[tuple[str, ...]] = set()
    chosen = []
    for launch in launches:
        kernel, _, arguments = launch.instance.partition("<")
        kernel = kernel.partition("__")[0]
        found = {(kernel, str(n), word) for n, word in enumerate(arguments.split(", "))}
        found |= {(kernel, p.get("name", ""), p.get("type", "")) for p in launch.parameters}
        if found - seen:
            chosen.append(launch)
        seen |= found
    return chosen


def test_every_kernel_is_valid():
    launches = covering(emulator.recorded(CHOSEN_CALLS.values()))
    assert len(launches) > 150
    assert all(launch.safe_math for launch in launches)  # v != v is not optimized away
    said = language.complaints(launches)
    assert not any(said.values()), said


ON_THREAD = "template <typename T> T f(const thread T* p) { return *p; }\n"
ON_DEVICE = ON_THREAD.replace("thread", "device")
ON_NOTHING = ON_THREAD.replace("thread ", "")
ON_ROWS = "template <typename T> T f(const thread T (*p)[2 * 3]) { return p[1][2]; }\n"
FROM_DEVICE, FROM_THREAD = "out[n] = f(x + n);", "T v = x[n]; out[n] = f(&v);"
FROM_ROWS = "const int N = K; T v[2][2 * N]; v[1][2] = x[n]; out[n] = f(v);"
BFLOAT = mx.bfloat16

# The body of a kernel, then, if needed, the code before it and the dtype
GOOD = {
    "a helper on device memory": (FROM_DEVICE, ON_DEVICE),
    "a helper on thread memory": (FROM_THREAD, ON_THREAD),
    "a helper on rows in thread memory": (FROM_ROWS, ON_ROWS),
    "bfloat made explicitly": ("float v = float(x[n]) * 2.0f; out[n] = T(v);", "", BFLOAT),
    "a table in constant memory": (
        "out[n] = T(table[n % 2u]);",
        "constant constexpr float table[2] = {};\n",
    ),
}
# The only check that finds the mistake. What several compilers reject is not listed.
BAD = {
    "a pointer without address space": ("words", "const T* p = x + n; out[n] = *p;"),
    "structured binding": (
        "pedantic",
        "P p; auto [a, b] = p; out[n] = T(a);",
        "struct P { int a, b; };\n",
    ),
    "device memory for a thread pointer": ("OpenCL", FROM_DEVICE, ON_THREAD),
    "a parameter without address space": ("words", FROM_THREAD, ON_NOTHING),
    "a pointer to rows without address space": ("words", FROM_ROWS, ON_ROWS.replace("thread ", "")),
    "a local reference without address space": ("words", "T v = x[n]; T& r = v; out[n] = r;"),
    "a mutable variable at program scope": ("words", "out[n] = x[n] + T(N0++);", "int N0 = 3;\n"),
    "a bool that counts": ("OpenCL", "bool b = false; b++; out[n] = T(b);"),
    "a member function": (
        "words",
        "B b; out[n] = T(b.f());",
        "struct B { int f() { return 1; } };\n",
    ),
    "float to bfloat": ("pedantic", "float v = float(x[n]) * 2.0f; out[n] = v;", "", BFLOAT),
    "double": ("words", "double d = x[n]; out[n] = T(d);"),
    "long long": ("words", "long long d = n; out[d] = x[n];"),
    "a literal without suffix": ("words", "out[n] = T(float(x[n]) * 0.5);"),
    "a lambda": ("words", "auto q = [](int n) { return n; }; out[n] = T(q(1));"),
    "goto": ("words", "if (n) goto end; out[n] = x[n]; end: return;"),
    "noexcept": ("words", "out[n] = T(g());", "inline int g() noexcept { return 1; }\n"),
    "a static variable": ("words", "static int m = 0; out[n] = T(m++);"),
    "another character in a comment": ("ASCII", "out[n] = x[n]; // 2 \N{MULTIPLICATION SIGN} 2"),
}


def launch_small(
    name: str, body: str, header: str = "", dtype: mx.Dtype = mx.float16
) -> list[mx.array]:
    inputs = {"x": mx.zeros((64,), dtype), "s": mx.zeros((3,), mx.int32)}
    header = f"// {name}\n{header}"  # so that each kernel has its own namespace
    template = [("T", dtype), ("K", 3)]
    return emulator.run_source(body, inputs, {"out": dtype}, header=header, template=template)


@pytest.fixture(scope="module")
def found(emulated_device) -> dict[str, set[str]]:
    """The checks that find errors in each small kernel."""
    kernels = {**GOOD, **{name: kernel for name, (_, *kernel) in BAD.items()}}
    calls = [lambda item=item: launch_small(item[0], *item[1]) for item in kernels.items()]
    said = language.complaints(emulator.recorded(calls))
    found: dict[str, set[str]] = {name: set() for name in kernels}
    for check, errors in said.items():
        for number in {int(n) for error in errors for n in re.findall(r"^KERNEL(\d+)", error)}:
            found[list(kernels)[number]].add(check)
    return found


@pytest.mark.parametrize("name_of_kernel", GOOD)
def test_valid_metal_is_accepted(name_of_kernel, found):
    assert not found[name_of_kernel]


@pytest.mark.parametrize("name_of_kernel", BAD)
def test_invalid_metal_is_rejected(name_of_kernel, found):
    assert found[name_of_kernel] == {BAD[name_of_kernel][0]}
