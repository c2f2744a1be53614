"""``python -m mlx_unpool check`` reports what is true, here on the emulated device."""

import re

import emulator
import metal_host
import mlx.core as mx
import pytest

from mlx_unpool import selftest
from mlx_unpool._backends.launches import KERNELS


class Wrong(emulator.Emulator):
    """A device on which one kernel is wrong, always or for inputs that begin anywhere."""

    kernel, always = "", True

    def run(self, launch: metal_host.Launch, inputs: list[mx.array]) -> list[mx.array]:
        outputs = super().run(launch, inputs)
        unaligned = any(metal_host.offset_of(x) % 4 for x in inputs)
        if self.kernel and self.kernel in launch.name and (self.always or unaligned):
            outputs[0] = outputs[0] + 1
        return outputs


@pytest.fixture
def run(monkeypatch, capsys):
    """A function that returns the exit status and the output of the self-test with small planes."""
    cpu_stream, info = mx.default_stream(mx.cpu), mx.device_info(mx.cpu)
    monkeypatch.setattr(mx, "default_stream", lambda _: cpu_stream)
    monkeypatch.setattr(mx, "device_info", lambda _: info)
    for name, value in {"_BIG": (1, 1, 8, 8, 64), "_SECONDS": 0}.items():
        monkeypatch.setattr(selftest, name, value)

    def run(device: emulator.Emulator) -> tuple[int, str]:
        capsys.readouterr()
        with device.installed():
            return selftest.report(), capsys.readouterr().out

    emulator.compile_all([lambda: mx.array(selftest.report())])
    return run


def test_kernels_that_agree_are_reported_and_every_kernel_and_branch_runs(run):
    device = emulator.Emulator()
    status, said = run(device)
    assert status == 0
    assert "All agree." in said
    assert "(metal)" in said
    assert said.endswith("```\n")
    rows = [line for line in said.splitlines() if "float" in line and "GB/s" not in line]
    assert len(rows) >= 20
    # primitives, with both rules and values alone
    assert all(row.count("yes") == 6 for row in rows)

    names = {launch.name for launch in device.launches}
    assert all(any(f"unpool_{kernel.name}_" in name for name in names) for kernel in KERNELS)
    found: dict[tuple[str, int], set[str]] = {}
    for launch in device.launches:
        kernel, _, arguments = launch.instance.partition("<")
        for n, value in enumerate(re.findall(r"[^,<>]+", arguments)):
            found.setdefault((kernel.partition("__")[0], n), set()).add(value.strip())
    assert not [key for key, values in found.items() if values in ({"true"}, {"false"})]


# As if a compiler merged two loads of 16 bits into one that ignores a bit of its address.
TWELVE = r"^12 DO NOT AGREE\."
WRONG = [  # always or only for unaligned inputs, and lines of the report
    (True, r"^2x2/2 flat +float32 +NO .* NO .* yes .* yes .* yes .* yes ", r"\d+ DO NOT AGREE\."),
    (False, r"^2x2/2 flat +float32 +yes .* yes .* yes .* yes .* yes .* yes ", TWELVE),
    (False, r"^3x3/1 +float16 +OFFSET .* OFFSET .* yes .* yes .* yes .* yes ", TWELVE),
]


@pytest.mark.parametrize(("always", "row", "total"), WRONG)
def test_a_kernel_that_does_not_agree_is_reported(always, row, total, run):
    device = Wrong()
    device.kernel, device.always = "unpool_pool__", always
    status, said = run(device)
    assert status == 1
    assert re.search(row, said, re.M)
    assert re.search(total, said, re.M)
