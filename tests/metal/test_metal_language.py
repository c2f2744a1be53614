"""The kernels' text is Metal, as far as compilers for its relatives can tell; mistakes sown in are found."""

from __future__ import annotations

import emulator
import language
import metal_host
import mlx.core as mx
import pytest
from kernel_cases import CHOSEN, IRREGULAR, irregular_results, pool_of_dtypes, results
from needs import needed


@pytest.fixture(autouse=True)
def clang(emulation) -> None:
    if language.clang() is None:
        needed("no clang 17 or later, and no ziglang package")


def test_every_kernel_passes_every_judge():
    device = emulator.Emulator()
    with device.installed(), device.recording():
        for seed, case in enumerate(CHOSEN):
            mx.eval(results(case, seed)())
        for seed, case in enumerate(IRREGULAR):
            mx.eval(irregular_results(case, seed)())
        mx.eval(pool_of_dtypes())
    launches = list({launch.text: launch for launch in device.launches}.values())
    assert len(launches) > 150
    assert all(launch.safe_math for launch in launches)  # v != v stays what it is
    assert language.complaints(launches) == {
        "address spaces": [],
        "C++17": [],
        "OpenCL": [],
        "pedantic": [],
        "words": [],
    }


ON_THREAD = "template <typename T> T f(const thread T* p) { return *p; }\n"
ON_DEVICE = "template <typename T> T f(const device T* p) { return *p; }\n"
ON_ROWS = "template <typename T> T f(const thread T (*p)[2 * 3]) { return p[1][2]; }\n"
ON_ROWS_OF_NOTHING = ON_ROWS.replace("thread ", "")
ON_NOTHING = "template <typename T> T f(const T* p) { return *p; }\n"
HALF, BFLOAT, TINY = {}, {"dtype": mx.bfloat16}, {"size": 4}

# name: body, header, options
GOOD = {
    "a helper on device memory": ("out[e] = f(x + e);", ON_DEVICE, HALF),
    "a helper on thread memory": ("T v = x[e]; out[e] = f(&v);", ON_THREAD, HALF),
    "a helper on rows in thread memory": (
        "const int N = K; T v[2][2 * N]; v[1][2] = x[e]; out[e] = f(v);",
        ON_ROWS,
        HALF,
    ),
    "bfloat made explicitly": ("float v = float(x[e]) * 2.0f; out[e] = T(v);", "", BFLOAT),
    "a table in constant memory": (
        *(
            "out[e] = T(table[e % 3u]);",
            "constant constexpr float table[3] = {1.0f, 2.0f, 3.0f};\n",
        ),
        HALF,
    ),
}
BAD = {
    "device memory for a thread pointer": ("out[e] = f(x + e);", ON_THREAD, HALF),
    "thread memory for a device pointer": ("T v = x[e]; out[e] = f(&v);", ON_DEVICE, HALF),
    "a tiny array, which is constant, for a device pointer": (
        "out[e] = f(x + e);",
        ON_DEVICE,
        TINY,
    ),
    "a constant for a device pointer": ("out[e] = T(f(s));", ON_DEVICE, HALF),
    "a parameter without address space, device given": ("out[e] = f(x + e);", ON_NOTHING, HALF),
    "a parameter without address space, local given": (
        "T v = x[e]; out[e] = f(&v);",
        ON_NOTHING,
        HALF,
    ),
    "a pointer to rows without address space": (
        "const int N = K; T v[2][2 * N]; v[1][2] = x[e]; out[e] = f(v);",
        ON_ROWS_OF_NOTHING,
        HALF,
    ),
    "a pointer without address space": ("const T* p = x + e; out[e] = *p;", "", HALF),
    "a reference without address space": ("const T& p = x[e]; out[e] = p;", "", HALF),
    "a local reference without address space": ("T v = x[e]; T& r = v; out[e] = r;", "", HALF),
    "a write to a constant": ("s[0] = 1; out[e] = x[e];", "", HALF),
    "a constant cast to writable": (
        "constant int* p = (constant int*)s; *p = 1; out[e] = x[e];",
        "",
        HALF,
    ),
    "a write to an input": ("x[e] = T(0); out[e] = x[e];", "", HALF),
    "device memory as threadgroup memory": ("threadgroup const T* p = x; out[e] = p[e];", "", HALF),
    "device memory cast to thread memory": (
        *("const thread T* p = (const thread T*)(x); out[e] = p[e];", ""),
        HALF,
    ),
    "a variable at program scope": ("out[e] = x[e] + T(N0);", "constexpr int N0 = 3;\n", HALF),
    "a mutable variable at program scope": ("out[e] = x[e] + T(N0++);", "int N0 = 3;\n", HALF),
    "a static variable": ("static int n = 0; out[e] = T(n++);", "", HALF),
    "float to bfloat": ("float v = float(x[e]) * 2.0f; out[e] = v;", "", BFLOAT),
    "a choice between bfloat and infinity": (
        *("T v = e > 3u ? x[e] : -INFINITY; out[e] = v;", ""),
        BFLOAT,
    ),
    "a choice between bfloat and a sum": (
        *("out[e] = e > 3u ? x[e] : float(x[e]) + 1.0f;", ""),
        BFLOAT,
    ),
    "a choice between half and infinity as bfloat": (
        *("bfloat16_t v = e > 3u ? half(1.0f) : -INFINITY; out[e] = v;", ""),
        BFLOAT,
    ),
    "half to bfloat": ("half h = half(1.0f); T v = h; out[e] = v;", "", BFLOAT),
    "double": ("double d = x[e]; out[e] = T(d);", "", HALF),
    "long long": ("long long d = e; out[d] = x[e];", "", HALF),
    "a literal without suffix": ("out[e] = T(float(x[e]) * 0.5);", "", HALF),
    "a pointer to a function": (
        *("int (*q)(int) = g; out[e] = T(q(1));", "inline int g(int n) { return n; }\n"),
        HALF,
    ),
    "a lambda": ("auto q = [](int n) { return n; }; out[e] = T(q(1));", "", HALF),
    "goto": ("if (e) goto end; out[e] = x[e]; end: return;", "", HALF),
    "new": ("int* p = new int; out[e] = T(*p);", "", HALF),
    "virtual": ("B b; out[e] = T(b.f());", "struct B { virtual int f() { return 1; } };\n", HALF),
    "exceptions": ("if (e > 5u) throw 1; out[e] = x[e];", "", HALF),
    "an array of unknown size": ("int a[e + 1u]; a[0] = 1; out[e] = T(a[0]);", "", HALF),
    "if constexpr": ("if constexpr (K == 3) { out[e] = x[e]; }", "", HALF),
    "structured binding": (
        *("P p; auto [a, b] = p; out[e] = T(a + b);", "struct P { int a = 1, b = 2; };\n"),
        HALF,
    ),
    "the standard library": ("out[e] = std::max(x[e], T(0));", "", HALF),
    "printf": ('printf("%d", e); out[e] = x[e];', "", HALF),
    "a scalar position": ("uint q = thread_position_in_grid; out[q] = x[e];", "", HALF),
    "an ambiguous max": ("out[e] = metal::max(x[e], 0.0f);", "", HALF),
    "the shape of an array that was not asked for": ("out[e] = T(y_shape[0]);", "", HALF),
}


def sown(body: str, header: str, dtype: mx.Dtype = mx.float16, size: int = 64) -> metal_host.Launch:
    """A small kernel with this in it."""
    kernel = mx.fast.metal_kernel(
        name="sown",
        input_names=["x", "s"],
        output_names=["out"],
        source="    uint e = thread_position_in_grid.x;\n" + body,
        header=header,
    )

    def call(x: mx.array, s: mx.array) -> mx.array:
        return kernel(
            inputs=[x, s],
            template=[("T", dtype), ("K", 3)],
            grid=(64, 1, 1),
            threadgroup=(32, 1, 1),
            output_shapes=[(64,)],
            output_dtypes=[dtype],
            stream=mx.gpu,
        )[0]

    return metal_host.launches_of(call, mx.zeros((size,), dtype), mx.zeros((3,), mx.int32))[0][0]


@pytest.mark.parametrize("name_of_text", GOOD)
def test_what_is_metal_is_taken(name_of_text):
    body, header, options = GOOD[name_of_text]
    said = language.complaints([sown(body, header, **options)])
    assert not any(said.values()), said


# What C++17 no longer has, or has only since: C++14 alone, or C++17 alone, would not say a word.
ONLY_CPP_14 = {
    "register": ("register int n = 3; out[e] = T(n);", "", HALF),
    "a bool that counts": ("bool b = false; b++; out[e] = T(b);", "", HALF),
}


@pytest.mark.parametrize("name_of_text", ONLY_CPP_14)
def test_what_metal_4_no_longer_takes_is_refused(name_of_text):
    body, header, options = ONLY_CPP_14[name_of_text]
    said = language.complaints([sown(body, header, **options)])
    assert said["C++17"]
    assert not said["address spaces"]


@pytest.mark.parametrize("name_of_text", BAD)
def test_what_is_not_metal_is_refused(name_of_text):
    body, header, options = BAD[name_of_text]
    said = language.complaints([sown(body, header, **options)])
    assert any(said.values())
