"""What a training program prints while it runs: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import functools
import platform
import re
import sys
import time
from pathlib import Path
from statistics import median

import mlx.core as mx
from tqdm import tqdm


class Progress:
    """A progress bar; without a terminal, a line every ten seconds with the time that is left.

    After five steps a line says how long the whole run takes.
    """

    def __init__(self, name: str, done: int, total: int) -> None:
        self.name, self.total = name, total
        if mx.default_device() == mx.cpu:
            recommend_blas()
        device = mx.default_device().type.name.upper()
        print(f"{name}: {total} steps on the {device}", flush=True)
        self.bar = tqdm(total=total, initial=done, desc=name, unit="step", disable=None)
        self.started = self.last_line = self.last_step = time.perf_counter()
        self.seconds: list[float] = []  # of each step and what comes after it, as an evaluation

    def after_step(self, done: int, loss: float) -> None:
        """Show the loss of a step, and how long the others take."""
        self.bar.update()
        self.bar.set_postfix(loss=f"{loss:.3f}")
        now = time.perf_counter()
        self.seconds.append(now - self.last_step)
        self.last_step = now
        if done == self.total:
            return
        # The median, because the first steps may compile kernels.
        per_step = median(self.seconds[-20:])
        left = per_step * (self.total - done)
        text = f"step {done} of {self.total}: loss {loss:.3f}, "
        if len(self.seconds) == 5:
            whole = duration(now - self.started + left)
            self.say(f"{text}{per_step:.2f} s per step, about {whole} in all")
        elif self.bar.disable and now - self.last_line > 10:
            self.say(f"{text}about {duration(left)} left")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self.last_line = time.perf_counter()
        self.bar.write(f"{self.name}, {text}")
        sys.stdout.flush()


def duration(seconds: float) -> str:
    """A time for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours"


@functools.cache  # prints once
def recommend_blas() -> None:
    """Print how to train faster if MLX's wheel brings the reference BLAS and no other is loaded."""
    maps, folder = Path("/proc/self/maps"), Path(mx.__file__).parents[1] / "mlx_cpu.libs"
    text = maps.read_text() if maps.exists() else ""
    loaded = re.findall(r"/.*/lib(?:blas|openblas|mkl|blis).*", text)
    if loaded and all(path.startswith(f"{folder}/") for path in loaded):
        library = f"/usr/lib/{platform.machine()}-linux-gnu/openblas-serial/libblas.so.3"
        print(
            "OpenBLAS trains 2 to 3 times as fast: apt install libopenblas0-serial, "
            f"LD_PRELOAD={library}"
        )
