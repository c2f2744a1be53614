"""Segment a whole brain: 95 structures in a T1-weighted scan, with the three networks of FastSurfer.

    python examples/brain_segment.py scan.nii.gz --models fastsurfer --output segmented

The scan may have any format that nibabel reads (.nii.gz, .mgz, ...). At the end the program writes into the
folder --output: labels with FreeSurfer's numbers on the grid of the scan (labels.nii.gz), the scan resampled
to the grid of the networks (scan.mgz), the labels on that grid (labels.mgz), their colour table (labels.txt)
and a figure (labels.png). It needs about 4.4 GiB of memory.
"""

import argparse
from contextlib import ExitStack
from pathlib import Path

from mlx_unpool_zoo.commands.command_line import extra, parser_of, run_program

with extra("examples"):
    import mlx_unpool_zoo as zoo
    import nibabel
    import numpy as np
    from brain_volumes import (
        CLASSES,
        PLANES,
        SIZE,
        THICKNESS,
        colour_table,
        conform,
        read_scan,
        scores_of,
        split_hemispheres,
        with_both_hemispheres,
    )
    from matplotlib.figure import Figure
    from mlx.utils import tree_flatten
    from mlx_unpool_zoo.commands.outputs import check_output_folder
    from mlx_unpool_zoo.drawing import frame, show_classes
    from mlx_unpool_zoo.files import checksum, replacing
    from nibabel.spatialimages import SpatialImage
    from nilearn.image import resample_to_img

PUBLISHED = "https://zenodo.org/records/10390573"
RESULTS = "scan.mgz", "labels.mgz", "labels.nii.gz", "labels.txt", "labels.png"
CHECKPOINTS = {plane.name: f"aparc_vinn_{plane.name}_v2.0.0.pkl" for plane in PLANES}
WEIGHTS = f"""weights:
  FastSurfer publishes a checkpoint for each plane at {PUBLISHED}.
  Download all three and convert them (no code from the files is run):

    python -m mlx_unpool_zoo convert fastsurfer_vinn {CHECKPOINTS["coronal"]} fastsurfer/coronal
    python -m mlx_unpool_zoo convert fastsurfer_vinn {CHECKPOINTS["sagittal"]} fastsurfer/sagittal
    python -m mlx_unpool_zoo convert fastsurfer_vinn {CHECKPOINTS["axial"]} fastsurfer/axial

  The plane is read from the file name; pass --plane for files with other names.
  Checkpoints of FastSurfer 1 (.../Coronal_Weights_FastSurferCNN/ckpts/Epoch_30_training_state.pkl and so on)
  are converted as fastsurfer_cnn. Not for clinical use."""


def load_models(folder: Path) -> dict[str, zoo.Model]:
    """Load the network of each plane from the subfolder with its name.

    Raises:
        ValueError: If a network is missing, is for another plane or other classes, or if two networks have
            the same weights.
    """
    missing = [name for name in CHECKPOINTS if not (folder / name).is_dir()]
    if missing:
        raise ValueError(
            f"--models must have a model in {', '.join(str(folder / name) for name in missing)}: download "
            f"{', '.join(CHECKPOINTS[name] for name in missing)} from {PUBLISHED} and convert each with "
            f"'python -m mlx_unpool_zoo convert fastsurfer_vinn FILE {folder}/PLANE'; see --help."
        )
    models = {name: zoo.from_pretrained(folder / name) for name in CHECKPOINTS}
    names: dict[str, str] = {}
    for name, model in models.items():
        expected = [79, 51] if name == "sagittal" else [79]
        slices, found = model.config.get("num_channels"), model.config.get("num_classes")
        if slices != THICKNESS or found not in expected:
            raise ValueError(
                f"{folder / name} must contain a network for {THICKNESS} slices and "
                f"{' or '.join(map(str, expected))} classes, but it is a {model.model_type} for "
                f"{slices} and {found}."
            )
        if model.about.plane != name:
            raise ValueError(
                f"{folder / name / 'config.json'}: 'plane' must be {name!r}, but got {model.about.plane!r}. "
                f"Convert the weights for {name} slices into this folder, with --plane {name} if the file "
                "name does not contain the plane."
            )
        same = names.setdefault(checksum(dict(tree_flatten(model.parameters())), {}), name)
        if same != name:
            raise ValueError(
                f"{folder / same} and {folder / name} must have different weights, but they are the same."
            )
    return models


def draw(volume: np.ndarray, labels: np.ndarray, path: Path) -> None:
    """Draw slices in the three planes with coloured labels; the left of the brain is on the right."""
    brain, classes = labels > 0 if labels.any() else volume >= 0, with_both_hemispheres()
    numbers = np.searchsorted([entry["label"] for entry in classes], labels)
    show = {  # how each slice is displayed: head up, or face up for axial slices, seen from below
        "coronal": lambda v, n: v[:, :, n].T,
        "axial": lambda v, n: v[:, n, ::-1].T,
        "sagittal": lambda v, n: v[n],
    }
    figure = Figure(figsize=(13, 10), layout="constrained", facecolor="black")
    for row, plane in zip(figure.subplots(3, 4), PLANES, strict=True):
        inside = np.flatnonzero(brain.any(axis=plane.axes[1:]))
        for axis, fraction in zip(row, (0.3, 0.45, 0.6, 0.75), strict=True):
            number = inside[int(fraction * (len(inside) - 1))]
            named = show[plane.name](numbers, number)
            axis.imshow(show[plane.name](volume, number), cmap="gray", vmin=0, vmax=255)
            show_classes(axis, named, classes, alpha=np.where(named > 0, 0.55, 0.0))
            axis.set_title(f"{plane.name} {number}", color="white")
            frame(axis)
            for side, x in () if plane.name == "sagittal" else (("R", 0.02), ("L", 0.93)):
                axis.text(x, 0.92, side, color="white", transform=axis.transAxes)
    figure.savefig(path, dpi=90)


def write(folder: Path, image: SpatialImage, scan: nibabel.MGHImage, labels: np.ndarray) -> None:
    """Write the results into a folder. No file there changes before all of them are complete."""
    conformed = nibabel.MGHImage(labels, scan.affine)
    with ExitStack() as stack:
        paths = [stack.enter_context(replacing(folder / name)) for name in RESULTS]
        volume, label_volume, nifti, table, picture = paths
        nibabel.save(scan, volume)
        nibabel.save(conformed, label_volume)
        # The label of the nearest voxel for each voxel of the scan, 0 outside the labels.
        options = {"interpolation": "nearest", "force_resample": True, "copy_header": False}
        nibabel.save(resample_to_img(nibabel.Nifti1Image(labels, scan.affine), image, **options), nifti)
        table.write_text(colour_table(with_both_hemispheres()), encoding="utf-8")
        draw(np.asarray(scan.dataobj), labels, picture)


def parse_arguments() -> argparse.Namespace:
    """Parse and check the command line."""
    parser = parser_of(None, __doc__.split("\n\n")[0])
    parser.epilog = WEIGHTS
    add = parser.add_argument
    add("scan", type=Path, help="T1-weighted scan of a head (.nii.gz, .mgz, ...)")
    add("--models", type=Path, default=Path("fastsurfer"), help="folder with one model per plane")
    add("--output", type=Path, default=Path("segmented"), help="output folder (default: segmented)")
    add("--batch", type=int, default=4, help="slices per batch (default: 4)")
    add("--size", type=int, default=SIZE, help=f"voxels along each axis, for tests; default: {SIZE}")
    arguments = parser.parse_args()
    if arguments.batch < 1 or arguments.size < 16 or arguments.size % 16:
        parser.error("--batch must be 1 or more, --size a multiple of 16")
    check_output_folder("--output", arguments.output)
    return arguments


def main() -> int:
    """Run the program and return the exit status."""
    arguments = parse_arguments()
    image = read_scan(arguments.scan)
    models = load_models(arguments.models)
    scan = conform(image, arguments.size)
    best = scores_of(np.asarray(scan.dataobj), models, arguments.batch).argmax(axis=-1)
    labels = split_hemispheres(np.array([entry["label"] for entry in CLASSES], np.int16)[best])
    write(arguments.output, image, scan, labels)
    found, counts = np.unique(labels[labels > 0], return_counts=True)
    names = {entry["label"]: entry["name"] for entry in with_both_hemispheres()}
    for label, count in sorted(zip(found, counts), key=lambda pair: -pair[1])[:5]:
        print(f"{names[label]:32}{count / 1000:9.1f} ml")
    print(f"{len(found)} structures, {counts.sum() / 1000:.1f} ml. Results are in {arguments.output}/.")
    return 0


if __name__ == "__main__":
    run_program(main, "examples")
