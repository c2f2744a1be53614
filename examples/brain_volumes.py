"""Convert T1-weighted head scans to inputs of FastSurfer's networks, and scores to label volumes.

This module follows FastSurfer (Deep-MI/FastSurfer, ``FastSurferCNN/data_loader`` and ``inference.py``): scans
are conformed to 256 x 256 x 256 voxels of 1 mm with values from 0 to 255; an input is seven neighbouring
slices; the scores of the three planes are added in float16; the sagittal network does not distinguish left
from right.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import mlx.core as mx
import mlx_unpool_zoo
import nibabel
import numpy as np
from mlx_unpool_zoo.messages import warn
from nibabel.freesurfer.mghformat import MGHHeader
from nibabel.openers import ImageOpener
from nibabel.processing import resample_from_to
from nibabel.spatialimages import SpatialImage
from scipy import ndimage
from tqdm import tqdm

SIZE = 256  # voxels of a conformed scan along each axis
# From voxels to world coordinates: the first axis points left, the second down, the third to the front.
ORIENTATION = np.array([[-1, 0, 0], [0, 0, 1], [0, -1, 0]], float)
THICKNESS = 7  # slices per input; the network segments the middle one
CLASSES = mlx_unpool_zoo.FASTSURFER[79]  # of the axial and the coronal network
NEIGHBOURS = np.ones((3, 3, 3))  # voxels that touch at a corner are connected
WHITE_MATTER = 2, 41  # left and right
# Labels of the left cortex that the networks use for both sides; split_hemispheres separates the sides.
SPLIT_BY_REGION = (
    *(1003, 1006, 1007, 1008, 1009, 1011, 1015, 1018, 1019, 1020, 1025, 1026, 1027),
    *(1028, 1029, 1030, 1031, 1034, 1035),
)
SPLIT_BY_VOXEL = 1011, 1019, 1026, 1029


# Scans.


def read_scan(path: Path) -> SpatialImage:
    """Read a volume in a format that nibabel supports, such as ``.nii.gz`` and ``.mgz``.

    Of a NIfTI file whose qform and sform differ, the qform is used, with a warning, as in FastSurfer. A file
    with neither is a warning, too.

    Raises:
        OSError: If there is no such file.
        ValueError: If it is damaged, is not a volume of real numbers, has several frames, or its header is
            inconsistent or has voxels that are not between 0.1 and 10 mm long.
    """
    path.open("rb").close()  # raises an error that gives the reason
    try:
        image = nibabel.load(path)
        for name in {part.filename for part in image.file_map.values()}:
            read_to_the_end(Path(name))
        doubt = set_orientation(image) if isinstance(image, nibabel.Nifti1Pair) else ""
        image = nibabel.squeeze_image(image)
        image.set_filename(path)  # for messages
        values = np.asanyarray(image.dataobj)
    except Exception as error:  # formats and damaged files raise many kinds of errors
        reason = (str(error) or type(error).__name__).partition("\n")[0].rstrip(".")
        raise ValueError(f"{path} cannot be read as a volume: {reason}.") from None
    sizes = image.header.get_zooms()[:3]
    sides = np.linalg.norm(image.affine[:3, :3], axis=0)
    problem = None
    if image.ndim != 3 or not values.size:
        problem = f"its shape is {image.shape}"
    elif values.dtype.kind not in "iuf":
        problem = f"its type is {values.dtype}"
    elif not np.isfinite(values).all():
        problem = "some of its values are not finite"
    elif values.min() == values.max():
        problem = f"all of its values are {values.max()}"
    if problem:
        raise ValueError(f"{path} must contain one volume of numbers, but {problem}.")
    if not np.allclose(sides, sizes, atol=1e-3):
        raise ValueError(
            f"{path} must have the same voxel size in its header and its affine matrix, but got "
            f"{np.round(sizes, 4).tolist()} mm and {np.round(sides, 4).tolist()} mm."
        )
    if not (0.1 <= sides.min() <= sides.max() <= 10 and np.abs(image.affine).max() <= 1e5):
        raise ValueError(
            f"{path} must have voxels of 0.1 to 10 mm, at most 100 m from the origin, but its affine is "
            f"{image.affine[:3].tolist()}."
        )
    if doubt:
        warn(f"{path}: {doubt}")
    return image


def set_orientation(image: nibabel.Nifti1Pair) -> str:
    """Use the qform of a scan if there is one; return what is doubtful about the orientation."""
    (qform, code), (sform, _) = image.get_qform(coded=True), image.get_sform(coded=True)
    if qform is None and sform is None:
        return "its header has no orientation. Which side is left is a guess."
    if qform is None or sform is None or np.abs(qform - sform).max() <= 1e-3:
        return ""
    image.set_sform(qform, int(code))
    return "its qform and sform differ. The qform is used, as in FastSurfer."


def read_to_the_end(path: Path) -> None:
    """Read a file, which may be compressed: its checksum, at the end, is then compared."""
    if path.is_file():
        with ImageOpener(path) as file:
            while file.read(2**20):
                pass


def conform(image: SpatialImage, size: int = SIZE) -> nibabel.MGHImage:
    """Resample a scan to the grid and the range of values that FastSurfer's networks were trained on.

    The result has ``size`` voxels of 1 mm along each axis, around the centre of the scan, in FreeSurfer's
    orientation. Values are interpolated linearly and are 0 outside the scan. They are scaled to 0 to 255 and
    the brightest thousandth is clipped, as in FreeSurfer's ``mri_convert --conform``. A scan that already has
    this form is returned unchanged, and an 8-bit scan keeps its values.

    The result is the same as that of FastSurfer's ``conform`` for voxels of 1 mm.
    ``nibabel.processing.conform`` has cubic interpolation, another orientation, a centre that differs by half
    a voxel, and no scaling of values. One difference from FastSurfer: a file of bytes whose
    header has a scale factor is not treated as an 8-bit scan.

    Args:
        image: A volume.
        size: 256, except for tests.

    What is longer than ``size`` mm is cut off, with a warning.
    """
    name = image.get_filename() or "the scan"
    length = (np.linalg.norm(image.affine[:3, :3], axis=0) * image.shape).max()
    if round(length - size, 1) > 0:
        warn(f"{name} is {length:.1f} mm long. {length - size:.1f} mm are cut off, half at each end.")
    header = MGHHeader()  # voxels of 1 mm
    header.set_data_shape((size,) * 3)
    header["Mdc"] = ORIENTATION.T
    header["Pxyz_c"] = (image.affine @ [*(np.array(image.shape) / 2), 1])[:3]
    target = header.get_affine()
    values = np.asanyarray(image.dataobj)
    eight_bits = values.dtype == np.uint8
    same_axes = np.allclose(image.affine[:3, :3], ORIENTATION, rtol=0, atol=1e-6)
    if eight_bits and image.shape == (size,) * 3 and same_axes:
        return nibabel.MGHImage(values, image.affine)
    as_floats = nibabel.Nifti1Image(values.astype(np.float64), image.affine)
    found = resample_from_to(as_floats, ((size,) * 3, target), order=1).get_fdata(caching="unchanged")
    if not eight_bits:
        lowest, factor = brightness(values)
        found = np.where(found == 0, 0, np.clip(factor * (found - lowest), 0, 255))
    conformed = np.clip(np.rint(found), 0, 255).astype(np.uint8)
    if conformed.min() == conformed.max():
        raise ValueError(
            f"{name} is empty after resampling to voxels of 1 mm: all values are {conformed.max()}."
        )
    return nibabel.MGHImage(conformed, target)


def brightness(values: np.ndarray) -> tuple[float, float]:
    """The offset to subtract from the values of a scan and the factor that scales them to 0 to 255."""
    counts, edges = np.histogram(values, 1000, (values.min(), values.max()))
    not_zero = np.count_nonzero(np.abs(values) >= 1e-15)
    enough = values.size - int((1 - 0.999) * not_zero)
    below = np.concatenate([[0], np.cumsum(counts)])
    highest = edges[np.flatnonzero(below >= enough)[0] - 2]  # two bins lower, as in mri_convert
    if highest == edges[0]:
        return float(edges[0]), 1.0
    return float(edges[0]), float(255 / (highest - edges[0]))


# Planes.


class Plane(NamedTuple):
    """A direction in which a volume is cut into slices."""

    name: str
    axes: tuple[int, int, int]  # of a conformed volume: across slices, down a slice, and along its rows
    weight: float  # of its scores in the sum


PLANES = (  # in the order in which FastSurfer adds them up
    Plane("coronal", (2, 0, 1), 0.4),
    Plane("sagittal", (0, 2, 1), 0.2),
    Plane("axial", (1, 2, 0), 0.4),
)


def scores_of(volume: np.ndarray, models: Mapping[str, mlx_unpool_zoo.Model], batch: int = 4) -> np.ndarray:
    """The weighted sums (X, Y, Z, classes) of the scores of the planes for a conformed scan, float16.

    They are rounded to float16 after each plane. Besides them, only one batch of slices is in memory.

    Args:
        volume: A conformed scan (X, Y, Z), uint8.
        models: The network of each plane. Those without left and right get the channels of both.
        batch: Slices per batch.
    """
    total = np.zeros((*volume.shape, len(CLASSES)), np.float16)
    for plane in PLANES:
        model, slices = models[plane.name], volume.transpose(plane.axes)
        sums = total.transpose(*plane.axes, 3)
        for start in tqdm(range(0, len(slices), batch), plane.name, unit="batch", disable=None):
            stop, first = min(start + batch, len(slices)), max(0, start - THICKNESS // 2)
            inputs = model.preprocess(slices[first : stop + THICKNESS // 2])[start - first : stop - first]
            scores = model(inputs)
            if scores.shape[-1] != len(CLASSES):
                scores = mx.take(scores, mx.array(sagittal_channels()), axis=-1)
            sums[start:stop] += np.array(plane.weight * scores.astype(mx.float32))
    return total


# Labels.


def sagittal_channels() -> list[int]:
    """The channel of the sagittal network for each class of the other two.

    It has no channels for structures on the left and for the cortex on the right. These classes get the
    channel of the other side.
    """
    own = [entry["name"] for entry in mlx_unpool_zoo.FASTSURFER[51]]
    names = (entry["name"].replace("Left-", "Right-").replace("ctx-rh-", "ctx-lh-") for entry in CLASSES)
    return [own.index(name) for name in names]


def with_both_hemispheres() -> list[dict]:
    """The classes and those that :func:`split_hemispheres` adds, by label."""
    by_label = {entry["label"]: entry for entry in CLASSES}
    for label in SPLIT_BY_REGION:
        name = by_label[label]["name"].replace("ctx-lh-", "ctx-rh-")
        by_label.setdefault(label + 1000, by_label[label] | {"name": name, "label": label + 1000})
    return [by_label[label] for label in sorted(by_label)]


def split_hemispheres(labels: np.ndarray) -> np.ndarray:
    """Relabel regions of the cortex that have a label of the left hemisphere but are in the right one.

    A connected region belongs to the side whose white matter has the nearer centre. Four labels, whose
    regions touch across the midline, are then decided for each voxel by the white matter around it.

    Args:
        labels: Label volume (X, Y, Z). For a side without white matter, the centre of the volume is used, as
            in FastSurfer.
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
    """A table of labels, names and colours in FreeSurfer's format."""
    lines = ["#No.  Label Name                            R   G   B   A"]
    for entry in classes:
        red, green, blue = entry["colour"]
        lines.append(f"{entry['label']:<6}{entry['name']:<36}{red:>3} {green:>3} {blue:>3}   0")
    return "\n".join(lines) + "\n"
