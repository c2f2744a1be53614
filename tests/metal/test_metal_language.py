"""The kernels are valid Metal as far as ``language.py`` can tell, and it finds mistakes in small kernels."""

from __future__ import annotations

import re

import emulator
import language
import mlx.core as mx
import pytest
from kernel_cases import CHOSEN_CALLS
from metal_host import Launch


@pytest.fixture(scope="module", autouse=True)
def clang() -> None:
    if language.clang() is None:
        pytest.skip("no clang 17 or later, and no ziglang package")


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
FROM_DEVICE, FROM_THREAD = "out[e] = f(x + e);", "T v = x[e]; out[e] = f(&v);"
FROM_ROWS = "const int N = K; T v[2][2 * N]; v[1][2] = x[e]; out[e] = f(v);"
BFLOAT = mx.bfloat16

# The body of a kernel, then, if needed, the code before it and the dtype
GOOD = {
    "a helper on device memory": (FROM_DEVICE, ON_DEVICE),
    "a helper on thread memory": (FROM_THREAD, ON_THREAD),
    "a helper on rows in thread memory": (FROM_ROWS, ON_ROWS),
    "bfloat made explicitly": ("float v = float(x[e]) * 2.0f; out[e] = T(v);", "", BFLOAT),
    "a table in constant memory": (
        *("out[e] = T(table[e % 2u]);", "constant constexpr float table[2] = {1.0f, 2.0f};\n"),
    ),
}
# The only check that finds the mistake, if there is just one
BAD = {
    "a pointer without address space": (None, "const T* p = x + e; out[e] = *p;"),
    "a write to a constant": (None, "s[0] = 1; out[e] = x[e];"),
    "half to bfloat": (None, "half h = half(1.0f); T v = h; out[e] = v;", "", BFLOAT),
    "an array of unknown size": (None, "int a[e + 1u]; a[0] = 1; out[e] = T(a[0]);"),
    "the standard library": (None, "out[e] = std::max(x[e], T(0));"),
    "structured binding": (
        *("C++14", "P p; auto [a, b] = p; out[e] = T(a + b);", "struct P { int a = 1, b = 2; };\n"),
    ),
    "device memory for a thread pointer": ("OpenCL", FROM_DEVICE, ON_THREAD),
    "a parameter without address space": ("OpenCL", FROM_THREAD, ON_NOTHING),
    "a pointer to rows without address space": (*("OpenCL", FROM_ROWS, ON_ROWS.replace("thread ", "")),),
    "a local reference without address space": ("OpenCL", "T v = x[e]; T& r = v; out[e] = r;"),
    "a mutable variable at program scope": ("OpenCL", "out[e] = x[e] + T(N0++);", "int N0 = 3;\n"),
    "a bool that counts": ("OpenCL", "bool b = false; b++; out[e] = T(b);"),
    "new": ("OpenCL", "int* p = new int; out[e] = T(*p);"),
    "virtual": (*("OpenCL", "B b; out[e] = T(b.f());", "struct B { virtual int f() { return 1; } };\n"),),
    "float to bfloat": ("pedantic", "float v = float(x[e]) * 2.0f; out[e] = v;", "", BFLOAT),
    "double": ("words", "double d = x[e]; out[e] = T(d);"),
    "long long": ("words", "long long d = e; out[d] = x[e];"),
    "a literal without suffix": ("words", "out[e] = T(float(x[e]) * 0.5);"),
    "a lambda": ("words", "auto q = [](int n) { return n; }; out[e] = T(q(1));"),
    "goto": ("words", "if (e) goto end; out[e] = x[e]; end: return;"),
    "noexcept": ("words", "out[e] = T(g());", "inline int g() noexcept { return 1; }\n"),
    "a static variable": ("words", "static int n = 0; out[e] = T(n++);"),
    "another character in a comment": ("ASCII", "out[e] = x[e]; // 2 \N{MULTIPLICATION SIGN} 2"),
}


def launch_small(name: str, body: str, header: str = "", dtype: mx.Dtype = mx.float16) -> mx.array:
    kernel = mx.fast.metal_kernel(
        name="small",
        input_names=["x", "s"],
        output_names=["out"],
        source="    uint e = thread_position_in_grid.x;\n" + body,
        header=f"// {name}\n{header}",  # so that each kernel has its own namespace
    )
    (out,) = kernel(
        inputs=[mx.zeros((64,), dtype), mx.zeros((3,), mx.int32)],
        template=[("T", dtype), ("K", 3)],
        grid=(64, 1, 1),
        threadgroup=(32, 1, 1),
        output_shapes=[(64,)],
        output_dtypes=[dtype],
    )
    return out


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
    only = BAD[name_of_kernel][0]
    assert found[name_of_kernel] == {only} if only else len(found[name_of_kernel]) > 1
