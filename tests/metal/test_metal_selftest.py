"""``python -m mlx_unpool.selftest`` reports what is true, here on the emulated device."""

import re

import emulator
import mlx.core as mx
import pytest
from test_metal_variants import Names

import mlx_unpool
from mlx_unpool import _backends, benchmark, selftest
from mlx_unpool._backends import gpu, kernel_source

SMALL_PLANES = {"_BIG": (1, 1, 8, 8, 64), "_REPEATS": 1, "_AT_ONCE": 1}


@pytest.fixture
def run(monkeypatch, capsys):
    """A function that returns the exit status and the output of the self-test with small planes."""
    cpu_stream, info = mx.default_stream(mx.cpu), mx.device_info(mx.cpu)
    monkeypatch.setattr(mx, "default_stream", lambda _: cpu_stream)
    monkeypatch.setattr(mx, "device_info", lambda _: info)
    for name, value in SMALL_PLANES.items():
        monkeypatch.setattr(selftest, name, value)

    def run(edit=lambda text: text) -> tuple[int, str]:
        emulator.compile_all([lambda: mx.array(selftest.main([]))], emulator.Emulator(edit))
        capsys.readouterr()
        with emulator.Emulator(edit).installed():
            return selftest.main([]), capsys.readouterr().out

    return run


def test_kernels_that_agree_are_reported(run):
    status, said = run()
    assert status == 0
    assert "All agree." in said
    assert "(metal)" in said
    assert said.endswith("```\n")
    rows = [line for line in said.splitlines() if "float" in line and "GB/s" not in line]
    assert len(rows) == len(selftest._CASES) + 2 * len(selftest._ALL_DTYPES)
    assert all(row.count("yes") == len(selftest._PRIMITIVES) for row in rows)


def test_a_kernel_that_does_not_agree_is_reported(run):
    right = "include(best[v], from[v], here);\n        }\n      }\n    }\n    const N to"
    assert kernel_source.text("pool.metal").count(right) == 1
    status, said = run(lambda text: text.replace(right, right.replace("from[v]", "T(-from[v])")))
    assert status == 1
    assert re.search(r"^2x2/2 flat +float32 +NO .* NO .* yes .* yes .* yes .* yes ", said, re.M)
    assert re.search(r"\d+ DO NOT AGREE\.", said)


def test_a_kernel_that_needs_aligned_inputs_is_reported(run):
    """As if a compiler merged two loads of 16 bits into one that ignores a bit of its address."""
    old = "const auto from = x + ((N(at.z) * D * H * W + position) * C + s.c);"
    new = old.replace("+ s.c);", "+ s.c - (position > 0 && uintptr_t(x) % 4));")
    assert kernel_source.text("pool.metal").count(old) == 1
    status, said = run(lambda text: text.replace(old, new))
    assert status == 1
    assert re.search(r"^2x2/2 flat +float32 +yes .* yes .* yes .* yes .* yes .* yes ", said, re.M)
    assert re.search(r"^3x3/1 +float16 +OFFSET .* OFFSET .* yes .* yes .* yes .* yes ", said, re.M)
    assert re.search(r"^12 DO NOT AGREE\.", said, re.M)


def test_it_runs_every_kernel_and_branch():
    device = Names()
    with device.installed(), mx.stream(mx.cpu):
        for case in selftest._CASES.values():
            for run, _ in selftest.calls(*case, mx.float32, _backends.get("ops")):
                run(_backends.get("metal"))
    assert {name for name, *_ in device.launches} == {f"unpool_{k.name}" for k in gpu.KERNELS}
    found: dict[tuple[str, str], set[bool]] = {}
    for name, template, *_ in device.launches:
        for flag, value in template:
            if isinstance(value, bool):
                found.setdefault((name.removeprefix("unpool_"), flag), set()).add(value)
    assert not {key for key, values in found.items() if len(values) == 1}


def test_the_first_call_of_the_benchmark_compiles_a_kernel():
    """Not one that the self-test or the table compiles as well, in whatever order they run."""
    device = Names()
    with device.installed(), mx.stream(mx.cpu):
        benchmark.first_call()
        (kernel,) = set(device.launches)
        assert kernel[0] == "unpool_pool"
        device.launches.clear()
        for case in selftest._CASES.values():
            for run, _ in selftest.calls(*case, mx.float32, _backends.get("ops")):
                run(_backends.get("metal"))
        for layer, window, shape in benchmark._CASES.values():
            for run in benchmark.passes(getattr(mlx_unpool, layer)(*window), mx.zeros((1, *shape))):
                run()
    assert kernel not in device.launches
