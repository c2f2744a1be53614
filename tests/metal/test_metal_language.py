"""The kernels are valid Metal as far as ``language.py`` can tell, and it finds mistakes in small kernels."""

from __future__ import annotations

import emulator
import language
import mlx.core as mx
import pytest
from kernel_cases import CHOSEN_CALLS


@pytest.fixture(autouse=True)
def clang(emulation) -> None:
    if language.clang() is None:
        pytest.skip("no clang 17 or later, and no ziglang package")


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
    "a pointer without address space": ("const T* p = x + e; out[e] = *p;",),
    "a write to a constant": ("s[0] = 1; out[e] = x[e];",),
    "a mutable variable at program scope": ("out[e] = x[e] + T(N0++);", "int N0 = 3;\n"),
    "half to bfloat": ("half h = half(1.0f); T v = h; out[e] = v;", "", BFLOAT),
    "double": ("double d = x[e]; out[e] = T(d);",),
    "a lambda": ("auto q = [](int n) { return n; }; out[e] = T(q(1));",),
    "an array of unknown size": ("int a[e + 1u]; a[0] = 1; out[e] = T(a[0]);",),
    "the standard library": ("out[e] = std::max(x[e], T(0));",),
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


@pytest.mark.parametrize("name_of_kernel", BAD)
def test_invalid_metal_is_rejected(name_of_kernel):
    assert any(complaints(*BAD[name_of_kernel]).values())
