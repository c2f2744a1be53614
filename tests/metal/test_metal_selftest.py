"""``python -m mlx_unpool.selftest`` says what is so, here on the emulated device."""

from __future__ import annotations

import emulator
import mlx.core as mx

from mlx_unpool import _kernels, selftest


def run(monkeypatch, edit=None) -> int:
    """The selftest on the emulated device, on planes small enough for it."""
    device = emulator.Emulator(edit)
    cpu_stream, info = mx.default_stream(mx.cpu), mx.device_info(mx.cpu)
    monkeypatch.setattr(mx, "default_stream", lambda _: cpu_stream)
    monkeypatch.setattr(mx, "device_info", lambda _: info)
    monkeypatch.setattr(selftest, "_SMALL", ((1, 1, 7, 6, 5),))
    monkeypatch.setattr(selftest, "_BIG", (1, 1, 6, 6, 8))
    monkeypatch.setattr(selftest, "_REPEATS", 1)
    emulator.compile_all([lambda: mx.array(selftest.main([]))], edit)
    with device.installed():
        return selftest.main([])


def test_kernels_that_agree_are_said_to(monkeypatch, capsys):
    assert run(monkeypatch) == 0
    # The first run was for compiling alone.
    said = capsys.readouterr().out.rpartition("mlx_unpool ")[2]
    assert "All agree." in said
    assert "(metal)" in said
    assert said.endswith("```\n")
    table = said[said.index("primitive ") : said.index("All agree.")].rstrip()
    rows = [line.split() for line in table.splitlines()][1:-1]
    # dtypes, windows, primitives with each format; those of adaptive windows
    assert len(rows) == 3 * (3 * (5 + 6) + 2)
    assert all("yes" in row for row in rows)


def test_a_kernel_that_does_not_agree_is_named(monkeypatch, capsys):
    right = "(rank > held) | nan"  # in the kernel for small windows of one size
    assert _kernels.text("pool.metal").count(right) == 1
    wrong = lambda text: text.replace(right, "(rank < held) | nan")  # noqa: E731
    assert run(monkeypatch, wrong) == 1
    said = capsys.readouterr().out
    assert "18 DO NOT AGREE." in said
    rows = {" ".join(line.split()[:5]) for line in said.splitlines()}
    assert {
        "pool 2x2/2 flat float16 NO",
        "place 2x2/2 flat float16 yes",
        "pool adaptive flat float16 yes",
    } <= rows
