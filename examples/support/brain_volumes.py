"""T1-weighted scans of heads as FastSurfer sees them, slice by slice in three planes, and label volumes.

Follows FastSurfer (Deep-MI/FastSurfer, ``FastSurferCNN/data_loader`` and ``inference.py``): scans are
conformed to 256 x 256 x 256 voxels of 1 mm, 0 to 255; seven neighbouring slices are an input; scores of the
three planes are added up in float16; the sagittal network does not tell left from right.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import nibabel
import numpy as np
from nibabel.freesurfer.mghformat import MGHHeader
from nibabel.processing import resample_from_to
from nibabel.spatialimages import SpatialImage
from scipy import ndimage

SIZE = 256  # of a conformed scan, along each axis
# From voxels to the world: the first axis goes to the left, the second down, the third to the front.
ORIENTATION = np.array([[-1, 0, 0], [0, 0, 1], [0, -1, 0]], float)
BLOCK = 16  # voxels along each axis in a block of a file of sums
THICKNESS = 7  # slices that a network sees, to say something of the one in the middle
LABELS = Path(__file__).with_name("fastsurfer_labels.txt")
NEIGHBOURS = np.ones((3, 3, 3))  # voxels that touch at a corner are connected
WHITE_MATTER = 2, 41  # left and right
# Labels of the left cortex that networks give to both, and those that are then settled voxel by voxel.
SPLIT_BY_REGION = (
    *(1003, 1006, 1007, 1008, 1009, 1011, 1015, 1018, 1019, 1020, 1025, 1026, 1027),
    *(1028, 1029, 1030, 1031, 1034, 1035),
)
SPLIT_BY_VOXEL = 1011, 1019, 1026, 1029


# Scans.


def read_scan(path: Path) -> SpatialImage:
    """A volume in a format that nibabel knows, such as ``.nii.gz`` and ``.mgz``.

    Raises:
        OSError: If there is no such file.
        ValueError: If it is no volume, has several frames, or its header contradicts itself.
    """
    path.open("rb").close()  # for an error that says why
    try:
        image = nibabel.squeeze_image(nibabel.load(path))
        values = np.asanyarray(image.dataobj)
    except Exception as error:  # each format has its own errors, and damaged files lead to others
        raise ValueError(f"{path} cannot be read as a volume: {first_line(error)}.") from None
    sizes = image.header.get_zooms()[:3]
    sides = np.linalg.norm(image.affine[:3, :3], axis=0)
    problem = None
    if image.ndim != 3:
        problem = f"its shape is {image.shape}"
    elif not np.isfinite(values).all():
        problem = "some of its values are not finite"
    elif values.min() == values.max():
        problem = f"all of its values are {values.max()}"
    if problem:
        raise ValueError(f"{path} must hold one volume of numbers, but {problem}.")
    if not np.allclose(sides, sizes, atol=1e-3):
        raise ValueError(
            f"{path} must say how large its voxels are, but its header says {np.round(sizes, 4).tolist()} mm "
            f"and its affine {np.round(sides, 4).tolist()} mm."
        )
    return image


def first_line(error: Exception) -> str:
    """What an error says, on one line."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def conform(image: SpatialImage, size: int = SIZE) -> nibabel.MGHImage:
    """A scan on the grid and in the range that FastSurfer's networks were trained on.

    The result has ``size`` voxels of 1 mm along each axis, around the centre of the scan, in the orientation
    of FreeSurfer; values in between are interpolated linearly and what lies outside is 0. Values become 0 to
    255, the brightest thousandth being cut off, as FreeSurfer's ``mri_convert --conform`` does. Scans that
    are like this already come back as they are, and those of 8 bits keep their values.

    This is what FastSurfer's ``conform`` gives for voxels of 1 mm. ``nibabel.processing.conform`` would take
    cubic interpolation, another orientation, a centre that is half a voxel off, and leave values as they are.
    One difference: bytes that a header scales to other numbers are no scan of 8 bits here.

    Args:
        image: A volume.
        size: 256, except for tests.
    """
    header = MGHHeader()  # voxels of 1 mm
    header.set_data_shape((size,) * 3)
    header["Mdc"] = ORIENTATION.T
    header["Pxyz_c"] = (image.affine @ [*(np.array(image.shape) / 2), 1])[:3]
    target = header.get_affine()
    values = np.asanyarray(image.dataobj)
    eight_bits = values.dtype == np.uint8
    like_this = image.shape == (size,) * 3 and np.allclose(
        image.affine[:3, :3], ORIENTATION, rtol=0, atol=1e-6
    )
    if eight_bits and like_this:
        return nibabel.MGHImage(values, image.affine)
    as_floats = nibabel.Nifti1Image(values.astype(np.float64), image.affine)
    found = resample_from_to(as_floats, ((size,) * 3, target), order=1).get_fdata(
        caching="unchanged"
    )
    if not eight_bits:
        lowest, factor = brightness(values)
        found = np.where(found == 0, 0, np.clip(factor * (found - lowest), 0, 255))
    return nibabel.MGHImage(np.clip(np.rint(found), 0, 255).astype(np.uint8), target)


def brightness(values: np.ndarray) -> tuple[float, float]:
    """What to subtract from the values of a scan, and the factor that then makes them 0 to 255."""
    counts, edges = np.histogram(values, 1000, (values.min(), values.max()))
    not_zero = np.count_nonzero(np.abs(values) >= 1e-15)
    enough = values.size - int((1 - 0.999) * not_zero)
    below = np.concatenate([[0], np.cumsum(counts)])
    highest = edges[np.flatnonzero(below >= enough)[0] - 2]  # two bins down, as mri_convert does
    if highest == edges[0]:
        return float(edges[0]), 1.0
    return float(edges[0]), float(255 / (highest - edges[0]))


# Planes.


@dataclass(frozen=True)
class Plane:
    """A direction to cut slices in.

    Attributes:
        name: What it is called.
        axes: Axes of a conformed volume: across slices, down a slice, and along its rows.
        weight: Of its scores in the sum.
    """

    name: str
    axes: tuple[int, int, int]
    weight: float


PLANES = (  # in the order in which FastSurfer adds them up
    Plane("coronal", (2, 0, 1), 0.4),
    Plane("sagittal", (0, 2, 1), 0.2),
    Plane("axial", (1, 2, 0), 0.4),
)


def thick_slices(slices: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Inputs for a network: each slice with its neighbours, those at the ends repeated.

    Args:
        slices: (slices, H, W), 0 to 255.
        start: The first one to take.
        stop: The first one that is not taken.

    Returns:
        (stop - start, H, W, THICKNESS), float32, 0 to 1.
    """
    around = np.arange(THICKNESS) - THICKNESS // 2
    numbers = np.clip(np.arange(start, stop)[:, None] + around, 0, len(slices) - 1)
    return np.moveaxis(slices[numbers], 1, -1).astype(np.float32) / 255


class Sums:
    """An array (X, Y, Z, classes) of float16 in a file, which is read and written in slabs across any axis.

    The file consists of blocks of up to ``BLOCK`` voxels along each axis. Only the slab is in memory.

    Args:
        path: The file.
        shape: The shape of the array.
        new: Whether to create the file.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], new: bool = False) -> None:
        self.shape = shape
        self.counts = tuple(-(-size // BLOCK) for size in shape[:3])
        self.file = path.open("w+b" if new else "rb")

    def __enter__(self) -> Sums:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def slabs(self, axis: int) -> list[tuple[int, int]]:
        """The first slice of each slab across an axis, and the first one after it."""
        size = self.shape[axis]
        return [(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]

    def read(self, axis: int, start: int) -> np.ndarray:
        """The slab across an axis that starts at a slice."""
        slab = self.empty(axis, start)
        for part, offset in self.blocks(axis, start):
            block = slab[part]
            self.file.seek(offset)
            found = np.frombuffer(self.file.read(block.nbytes), np.float16)
            slab[part] = found.reshape(block.shape)
        return slab

    def write(self, axis: int, start: int, slab: np.ndarray) -> None:
        """Writes a slab across an axis."""
        for part, offset in self.blocks(axis, start):
            self.file.seek(offset)
            self.file.write(np.ascontiguousarray(slab[part]))

    def empty(self, axis: int, start: int) -> np.ndarray:
        """Zeros in the shape of a slab."""
        shape = list(self.shape)
        shape[axis] = min(BLOCK, shape[axis] - start)
        return np.zeros(shape, np.float16)

    def blocks(self, axis: int, start: int) -> Iterator[tuple[tuple[slice, ...], int]]:
        """The part of a slab that each of its blocks is, and where the block is in the file."""
        numbers = [range(count) for count in self.counts]
        numbers[axis] = range(start // BLOCK, start // BLOCK + 1)
        size = BLOCK**3 * self.shape[3] * np.dtype(np.float16).itemsize
        for block in itertools.product(*numbers):
            part = [slice(n * BLOCK, (n + 1) * BLOCK) for n in block]
            part[axis] = slice(None)
            yield tuple(part), int(np.ravel_multi_index(block, self.counts)) * size


def add_plane(
    total: np.ndarray,
    volume: np.ndarray,
    plane: Plane,
    network: Callable[[mx.array], mx.array],
    *,
    first: int = 0,
    channels: Sequence[int] | None = None,
    batch: int = 4,
    done: Callable[[int], object] = lambda slices: None,
) -> None:
    """Adds a network's scores for slices of a plane to those of other planes.

    Besides ``total`` it needs memory for a batch of slices only.

    Args:
        total: (X, Y, Z, classes), float16, changed in place: of all slices, or of some that are adjacent.
            Sums are rounded to float16 after each plane.
        volume: A conformed scan (X, Y, Z), 0 to 255.
        plane: The plane of the slices.
        network: Scores (N, H, W, C) of thick slices (N, H, W, THICKNESS).
        first: The first slice that is in ``total``.
        channels: The channel of the network for each class of ``total``, if they differ.
        batch: Slices at a time.
        done: Called after each batch with the number of its slices.
    """
    slices, sums = volume.transpose(plane.axes), total.transpose(*plane.axes, 3)
    chosen = None if channels is None else mx.array(channels)
    for start in range(0, len(sums), batch):
        stop = min(start + batch, len(sums))
        scores = network(mx.array(thick_slices(slices, first + start, first + stop)))
        if chosen is not None:
            scores = mx.take(scores, chosen, axis=-1)
        weighted = np.array(plane.weight * scores.astype(mx.float32))
        sums[start:stop] = sums[start:stop] + weighted
        done(stop - start)


def best_classes(sums: Sums) -> np.ndarray:
    """The class with the highest sum for each voxel; of equal sums, the first class."""
    parts = [sums.read(0, start).argmax(axis=-1).astype(np.int16) for start, _ in sums.slabs(0)]
    return np.concatenate(parts)


# Labels.


def sagittal_channels(classes: list[dict]) -> list[int]:
    """The channel of the sagittal network for each class of the other two.

    It has no channels for structures on the left and for the cortex on the right; theirs are those of the
    other side.

    Args:
        classes: Of the axial and the coronal network: ``name`` and ``label`` of each.
    """
    own = [c["name"] for c in classes if not c["name"].startswith(("Left-", "ctx-rh-"))]
    twins = {name: name for name in own}
    twins |= {name.replace("Right-", "Left-"): name for name in own if name.startswith("Right-")}
    twins |= {
        name.replace("ctx-lh-", "ctx-rh-"): name for name in own if name.startswith("ctx-lh-")
    }
    return [own.index(twins[c["name"]]) for c in classes]


def with_both_hemispheres(classes: list[dict]) -> list[dict]:
    """The classes and those that :func:`split_hemispheres` adds, by label."""
    by_label = {c["label"]: c for c in classes}
    for label in SPLIT_BY_REGION:
        if label in by_label and label + 1000 not in by_label:
            name = by_label[label]["name"].replace("ctx-lh-", "ctx-rh-")
            by_label[label + 1000] = by_label[label] | {"name": name, "label": label + 1000}
    return [by_label[label] for label in sorted(by_label)]


def split_hemispheres(labels: np.ndarray) -> np.ndarray:
    """Relabels regions of the cortex that networks call left and that are in the right hemisphere.

    A connected region belongs to the side whose white matter has the nearer centre. Four labels, whose
    regions touch across the midline, are then decided for each voxel by the white matter around it.

    Args:
        labels: Label volume (X, Y, Z). For a side without white matter, the centre of the volume is taken,
            as FastSurfer does.
    """
    labels = labels.copy()
    masks = [labels == label for label in WHITE_MATTER]
    left, right = (centre_of_largest(mask) for mask in masks)
    for label in SPLIT_BY_REGION:
        regions, count = ndimage.label(labels == label, NEIGHBOURS)
        numbers = np.arange(1, count + 1)
        centres = np.array(ndimage.center_of_mass(regions > 0, regions, numbers)).reshape(-1, 3)
        nearer = np.linalg.norm(centres - right, axis=1) < np.linalg.norm(centres - left, axis=1)
        labels[np.isin(regions, numbers[nearer])] = label + 1000
    difference = ndimage.gaussian_filter(1000.0 * masks[1], 3)
    difference -= ndimage.gaussian_filter(1000.0 * masks[0], 3)
    on_the_right = difference > 0
    for label in SPLIT_BY_VOXEL:
        of_either = (labels == label) | (labels == label + 1000)
        labels[of_either] = np.where(on_the_right[of_either], label + 1000, label)
    return labels


def centre_of_largest(mask: np.ndarray) -> np.ndarray:
    """The centre of the largest connected region, or of the volume if there is none."""
    if not mask.any():
        return (np.array(mask.shape) - 1) / 2
    regions, count = ndimage.label(mask, NEIGHBOURS)
    largest = np.bincount(regions.ravel(), minlength=count + 1)[1:].argmax() + 1
    return np.array(ndimage.center_of_mass(regions == largest))


def colour_table(classes: list[dict]) -> str:
    """Labels, names and colours as FreeSurfer writes them, which viewers read."""
    lines = ["#No.  Label Name                            R   G   B   A"]
    for entry in classes:
        red, green, blue = entry["colour"]
        lines.append(f"{entry['label']:<6}{entry['name']:<36}{red:>3} {green:>3} {blue:>3}   0")
    return "\n".join(lines) + "\n"
