"""The kernels are valid Metal as far as ``language.py`` can tell, and it finds mistakes in small kernels."""

from __future__ import annotations

import emulator
import language
import mlx.core as mx
import pytest
from kernel_cases import CHOSEN_CALLS
from needs import needed


@pytest.fixture(autouse=True)
def clang(emulation) -> None:
    if language.clang() is None:
        needed("no clang 17 or later, and no ziglang package")


def test_every_kernel_is_valid():
    device = emulator.Emulator(record=True)
    with device.installed():
        for call in CHOSEN_CALLS.values():
            mx.eval(call())
    launches = list({launch.text: launch for launch in device.launches}.values())
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

# The body of a kernel, then, if needed, the code before it, the dtype and the size of x
GOOD = {
    "a helper on device memory": (FROM_DEVICE, ON_DEVICE),
    "a helper on thread memory": (FROM_THREAD, ON_THREAD),
    "a helper on rows in thread memory": (FROM_ROWS, ON_ROWS),
    "bfloat made explicitly": ("float v = float(x[e]) * 2.0f; out[e] = T(v);", "", BFLOAT),
    "a table in constant memory": (
        *("out[e] = T(table[e % 2u]);", "constant constexpr float table[2] = {1.0f, 2.0f};\n"),
    ),
}
BAD = {
    "device memory for a thread pointer": (FROM_DEVICE, ON_THREAD),
    "thread memory for a device pointer": (FROM_THREAD, ON_DEVICE),
    "a tiny array, which is constant, for a device pointer": (
        *(FROM_DEVICE, ON_DEVICE, mx.float16, 4),
    ),
    "a constant for a device pointer": ("out[e] = T(f(s));", ON_DEVICE),
    "a parameter without address space, device given": (FROM_DEVICE, ON_NOTHING),
    "a parameter without address space, local given": (FROM_THREAD, ON_NOTHING),
    "a pointer to rows without address space": (FROM_ROWS, ON_ROWS.replace("thread ", "")),
    "a pointer without address space": ("const T* p = x + e; out[e] = *p;",),
    "a reference without address space": ("const T& p = x[e]; out[e] = p;",),
    "a local reference without address space": ("T v = x[e]; T& r = v; out[e] = r;",),
    "a write to a constant": ("s[0] = 1; out[e] = x[e];",),
    "a constant cast to writable": ("constant int* p = (constant int*)s; *p = 1; out[e] = x[e];",),
    "a write to an input": ("x[e] = T(0); out[e] = x[e];",),
    "device memory as threadgroup memory": ("threadgroup const T* p = x; out[e] = p[e];",),
    "device memory cast to thread": ("const thread T* p = (const thread T*)(x); out[e] = p[e];",),
    "a variable at program scope": ("out[e] = x[e] + T(N0);", "constexpr int N0 = 3;\n"),
    "a mutable variable at program scope": ("out[e] = x[e] + T(N0++);", "int N0 = 3;\n"),
    "a static variable": ("static int n = 0; out[e] = T(n++);",),
    "float to bfloat": ("float v = float(x[e]) * 2.0f; out[e] = v;", "", BFLOAT),
    "bfloat or infinity": ("T v = e > 3u ? x[e] : -INFINITY; out[e] = v;", "", BFLOAT),
    "bfloat or a sum": ("out[e] = e > 3u ? x[e] : float(x[e]) + 1.0f;", "", BFLOAT),
    "half or infinity as bfloat": (
        *("bfloat16_t v = e > 3u ? half(1.0f) : -INFINITY; out[e] = v;", "", BFLOAT),
    ),
    "half to bfloat": ("half h = half(1.0f); T v = h; out[e] = v;", "", BFLOAT),
    "double": ("double d = x[e]; out[e] = T(d);",),
    "long long": ("long long d = e; out[d] = x[e];",),
    "a literal without suffix": ("out[e] = T(float(x[e]) * 0.5);",),
    "a pointer to a function": (
        *("int (*q)(int) = g; out[e] = T(q(1));", "inline int g(int n) { return n; }\n"),
    ),
    "a lambda": ("auto q = [](int n) { return n; }; out[e] = T(q(1));",),
    "goto": ("if (e) goto end; out[e] = x[e]; end: return;",),
    "new": ("int* p = new int; out[e] = T(*p);",),
    "virtual": ("B b; out[e] = T(b.f());", "struct B { virtual int f() { return 1; } };\n"),
    "exceptions": ("if (e > 5u) throw 1; out[e] = x[e];",),
    "an array of unknown size": ("int a[e + 1u]; a[0] = 1; out[e] = T(a[0]);",),
    "if constexpr": ("if constexpr (K == 3) { out[e] = x[e]; }",),
    "structured binding": (
        *("P p; auto [a, b] = p; out[e] = T(a + b);", "struct P { int a = 1, b = 2; };\n"),
    ),
    "the standard library": ("out[e] = std::max(x[e], T(0));",),
    "printf": ('printf("%d", e); out[e] = x[e];',),
    "a scalar position": ("uint q = thread_position_in_grid; out[q] = x[e];",),
    "an ambiguous max": ("out[e] = metal::max(x[e], 0.0f);",),
    "a shape without the array": ("out[e] = T(y_shape[0]);",),
}
# Removed in C++17, so that the checks with C++14 alone accept them.
ONLY_CPP_14 = {
    "register": ("register int n = 3; out[e] = T(n);",),
    "a bool that counts": ("bool b = false; b++; out[e] = T(b);",),
}


def complaints(
    body: str, header: str = "", dtype: mx.Dtype = mx.float16, size: int = 64
) -> dict[str, list[str]]:
    """The errors found in a small kernel."""
    device = emulator.Emulator(record=True)
    with device.installed():
        kernel = mx.fast.metal_kernel(
            name="small",
            input_names=["x", "s"],
            output_names=["out"],
            source="    uint e = thread_position_in_grid.x;\n" + body,
            header=header,
        )
        kernel(
            inputs=[mx.zeros((size,), dtype), mx.zeros((3,), mx.int32)],
            template=[("T", dtype), ("K", 3)],
            grid=(64, 1, 1),
            threadgroup=(32, 1, 1),
            output_shapes=[(64,)],
            output_dtypes=[dtype],
        )
    return language.complaints(device.launches)


@pytest.mark.parametrize("name_of_kernel", GOOD)
def test_valid_metal_is_accepted(name_of_kernel):
    said = complaints(*GOOD[name_of_kernel])
    assert not any(said.values()), said


@pytest.mark.parametrize("name_of_kernel", ONLY_CPP_14)
def test_what_metal_4_rejects_is_rejected(name_of_kernel):
    said = complaints(*ONLY_CPP_14[name_of_kernel])
    assert said["C++17"]
    assert not said["address spaces"]


@pytest.mark.parametrize("name_of_kernel", BAD)
def test_invalid_metal_is_rejected(name_of_kernel):
    assert any(complaints(*BAD[name_of_kernel]).values())
