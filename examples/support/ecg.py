"""Simulated recordings from the electrocardiogram that comes with PyWavelets.

It has three heartbeats, one for each split. Recordings are stretched and scaled copies with drift and noise.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pywt.data

CLASS_NAMES = ("between", "P wave", "QRS complex", "T wave")
COLOURS = ("none", "tab:blue", "tab:red", "tab:green")
# The samples of each beat, and of its P wave, QRS complex and T wave, found by inspection of the signal.
BEATS = {
    "train": (40, 350, (128, 160), (180, 208), (255, 330)),
    "validation": (368, 678, (455, 490), (505, 535), (585, 655)),
    "test": (698, 1008, (785, 817), (840, 868), (925, 985)),
}
SAMPLES = 1000  # samples per recording


def beat(split: str) -> tuple[np.ndarray, np.ndarray]:
    """The heartbeat of a split, its ends at 0 and its peak at about 1, and the class of each sample."""
    start, stop, *waves = BEATS[split]
    trace = pywt.data.ecg()[start:stop].astype(float)
    trace -= np.linspace(trace[0], trace[-1], len(trace))
    classes = np.zeros(len(trace), np.int32)
    for number, (first, last) in enumerate(waves, start=1):
        classes[first - start : last - start] = number
    return trace / trace.max(), classes


def recordings(split: str, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Recordings (count, SAMPLES) of a split's beat with varying rate and amplitude, and their classes."""
    trace, classes = beat(split)
    signals = np.zeros((count, SAMPLES), np.float32)
    truth = np.zeros((count, SAMPLES), np.int32)
    for signal, labels in zip(signals, truth):
        start = -int(random.integers(180))
        while start < SAMPLES:
            length = int(len(trace) * random.uniform(0.6, 1.4))
            at = np.linspace(0, len(trace) - 1, length)
            drawn = random.uniform(0.7, 1.3) * np.interp(at, np.arange(len(trace)), trace)
            inside = slice(max(start, 0), min(start + length, SAMPLES))
            part = slice(inside.start - start, inside.stop - start)
            signal[inside], labels[inside] = drawn[part], classes[at.round().astype(int)][part]
            start += length + int(random.integers(0, 120))
        wave = np.arange(SAMPLES) / SAMPLES * random.uniform(2, 12) + random.uniform(0, 6)
        signal += random.uniform(0, 0.3) * np.sin(wave) + random.normal(0, 0.08, SAMPLES)
    return signals, truth


def training_batches(count: int, seed: int) -> Iterator[tuple[mx.array, mx.array]]:
    """Endless batches of recordings; the same seed gives the same batches."""
    random = np.random.default_rng(seed)
    while True:
        signals, truth = recordings("train", count, random)
        yield mx.array(signals[..., None]), mx.array(truth)
