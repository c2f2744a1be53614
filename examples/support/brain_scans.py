"""Simulated brain scans from the MNI152 template, which comes with nilearn.

The template is an average of the brains of 152 people, with the probability of grey and of white
matter at each position. Two coronal slabs of it are excluded from training.
"""

import functools
import itertools
from collections.abc import Iterator

import mlx.core as mx
import numpy as np
from mlx_unpool_zoo.metrics import dice
from nilearn import datasets

CLASS_NAMES = ("other", "grey matter", "white matter")
# Coronal slices of 2 mm. Left and right halves would not be independent, because the template is symmetric.
SLABS = {"validation": (20, 32), "test": (54, 70)}
GAP = 2  # slices between a slab and the training data
# The smallest size of a patch. Random sizes are up to 3 larger, so that odd sizes occur in training.
PATCH = (20, 12, 20)


@functools.cache
def brain() -> tuple[np.ndarray, np.ndarray]:
    """The brightness of each voxel of the template at 2 mm, 0 to 1, and its class; both (99, 117, 95)."""
    bright, grey, white = (
        load(resolution=2).get_fdata()
        for load in (
            datasets.load_mni152_template,
            datasets.load_mni152_gm_template,
            datasets.load_mni152_wm_template,
        )
    )
    classes = np.argmax(np.stack([1 - grey - white, grey, white]), axis=0)
    return bright.astype(np.float32), classes.astype(np.int32)


def scanned(bright: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A simulated scan with random gain, uneven sensitivity and noise; values from about 0 to 4."""
    slopes = np.meshgrid(*(np.linspace(-1, 1, size) for size in bright.shape), indexing="ij")
    terms = [*(slope / 3 for slope in slopes), *(slopes[i] * slopes[i - 1] for i in range(3))]
    field = sum(a * term for a, term in zip(random.uniform(-1, 1, 6), terms))
    gain = random.uniform(0.85, 1.15) * np.exp(0.4 * field)
    return (4 * bright * gain + random.normal(0, 0.2, bright.shape)).astype(np.float32)


def training_batches(
    bright: np.ndarray, classes: np.ndarray, count: int, seed: int
) -> Iterator[tuple[mx.array, mx.array]]:
    """Endless batches of patches outside the slabs, half of them mirrored left to right."""
    random = np.random.default_rng(seed)
    forbidden = np.zeros(classes.shape[1], bool)
    for first, last in SLABS.values():
        forbidden[first - GAP : last + GAP] = True
    while True:
        sizes = [least + random.integers(4) for least in PATCH]
        patches: list[tuple[np.ndarray, np.ndarray]] = []
        while len(patches) < count:
            corner = [random.integers(0, n - size + 1) for n, size in zip(classes.shape, sizes)]
            area = tuple(slice(start, start + size) for start, size in zip(corner, sizes))
            if forbidden[area[1]].any() or (classes[area] > 0).mean() < 0.2:
                continue
            step = random.choice((1, -1))
            patches.append((scanned(bright[area], random)[::step], classes[area][::step]))
        volumes, truths = (np.stack(part) for part in zip(*patches, strict=True))
        yield mx.array(volumes[..., None]), mx.array(truths)


def scans_of(
    split: str, bright: np.ndarray, classes: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """``count`` simulated scans (scan, x, y, z) of a slab, and their true classes (x, y, z)."""
    random = np.random.default_rng([1, list(SLABS).index(split)])
    slab = slice(*SLABS[split])
    scans = [scanned(bright, random)[:, slab] for _ in range(count)]
    return np.stack(scans), classes[:, slab]


def dice_of_scans(truth: np.ndarray, predicted: np.ndarray) -> dict[str, dict[str, float]]:
    """The mean and the standard deviation of the Dice coefficient of each class over scans."""
    each = [dice(truth, scan, CLASS_NAMES) for scan in predicted]
    return {
        name: {
            "mean": float(np.mean([scores[name] for scores in each])),
            "sd": float(np.std([scores[name] for scores in each], ddof=1)),
        }
        for name in CLASS_NAMES[1:]
    }


def two_thresholds(volume: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """The two brightness thresholds of a grid with the highest Dice coefficients, as a baseline."""
    grid = np.linspace(1, 4, 25)
    levels = np.digitize(volume, grid)
    size = len(grid) + 1
    # The number of voxels of each class at or below each level.
    counts = np.bincount((truth * size + levels).ravel(), minlength=len(CLASS_NAMES) * size)
    below = counts.reshape(-1, size).cumsum(axis=1)

    def score(pair: tuple[int, int]) -> float:
        low, high = pair
        inside = (below[:, high] - below[:, low], below[:, -1] - below[:, high])
        return sum(
            2 * found[number] / (found.sum() + below[number, -1])
            for number, found in enumerate(inside, start=1)
        )

    low, high = max(itertools.combinations(range(len(grid)), 2), key=score)
    return grid[low], grid[high]
