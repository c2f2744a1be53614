"""Segmentation of a whole brain in three planes: scans, slices, sums, labels and the program."""

import gzip
import shutil
from pathlib import Path

import brain_segment
import brain_volumes as volumes
import mlx.core as mx
import mlx_unpool_zoo as zoo
import nibabel
import numpy as np
import pytest
from helpers.faults import check_faults, damaged
from helpers.programs import call
from matplotlib.figure import Figure
from nibabel.spatialimages import SpatialImage
from scipy import ndimage
from scipy.ndimage import map_coordinates

# Of FreeSurfer: the first axis of a conformed scan points left, the second down, the third to the front.
ORIENTATION = np.array([[-1, 0, 0], [0, 0, 1], [0, -1, 0]])
COUNTS = {"coronal": 79, "sagittal": 51, "axial": 79}  # classes of the network of each plane


def affine(voxels: np.ndarray, origin: tuple[float, ...]) -> np.ndarray:
    result = np.eye(4)
    result[:3, :3], result[:3, 3] = voxels, origin
    return result


def head(shape: tuple[int, ...]) -> np.ndarray:
    """Smooth values from 0.2 to 1, and 0 at the faces of the volume."""
    values = ndimage.gaussian_filter(np.random.default_rng(0).random(shape), 2)
    inside = np.pad(np.ones([n - 2 for n in shape]), 1)
    return inside * (0.2 + 0.8 * (values - values.min()) / np.ptp(values))


def voxels_in(image: SpatialImage, other: SpatialImage) -> np.ndarray:
    """For each voxel of a scan, its position (3, X, Y, Z) in voxels of another one."""
    matrix = np.linalg.inv(other.affine) @ image.affine
    return np.tensordot(matrix[:3, :3], np.indices(image.shape), 1) + matrix[:3, 3, None, None, None]


# Scans.

TILTED = np.array([[0.02, -1.2, 0.1], [0.9, 0.05, 0.2], [-0.15, 0.1, 1.4]])


@pytest.mark.parametrize(
    ("voxels", "dtype", "highest"),
    [(np.diag([-0.8, 1.1, 2.0]), np.int16, 900), (TILTED, np.float64, 1e5), (TILTED, np.uint8, 250)],
    ids=["straight", "tilted", "8 bits"],
)
def test_a_conformed_scan_has_the_values_of_the_scan_at_the_same_points(voxels, dtype, highest):
    values = (highest * head((37, 30, 22))).astype(dtype)
    image = nibabel.Nifti1Image(values, affine(voxels, (-10, 20, 5)))
    conformed = volumes.conform(image, 48)
    found = np.asarray(conformed.dataobj)
    assert (found.shape, found.dtype) == ((48, 48, 48), np.uint8)
    assert np.array_equal(conformed.affine[:3, :3], ORIENTATION)
    # The centre, as FreeSurfer counts: voxel (n / 2) of both.
    assert np.allclose(conformed.affine @ [24, 24, 24, 1], image.affine @ [37 / 2, 15, 11, 1], atol=1e-4)
    points = voxels_in(conformed, image)
    expected = map_coordinates(values.astype(float), points, order=1)
    if dtype != np.uint8:
        lowest, factor = volumes.brightness(values)
        expected = np.where(expected == 0, 0, np.clip((expected - lowest) * factor, 0, 255))
    assert found.max() > 200
    # At the outermost half voxel rounding decides what is outside; elsewhere, what .5 becomes.
    inner = np.all([(p > 1e-3) & (p < n - 1 - 1e-3) for p, n in zip(points, values.shape)], axis=0)
    assert np.abs(found - expected)[inner].max() <= 0.5 + 1e-3


def test_the_brightest_thousandth_is_cut_off():
    values = np.zeros((10, 10, 20))
    values.flat[:1000] = np.arange(1, 1001)
    # 1000 bins of width 1; one voxel above the cut, which is two bins below.
    assert volumes.brightness(values) == (0, pytest.approx(255 / 998))
    lowest, factor = volumes.brightness(np.where(values == 1000, 5000, values))
    assert (lowest, 980 < 255 / factor < 1000) == (0, True)


def test_conformed_scans_stay_as_they_are_and_bytes_that_the_header_scales_do_not(tmp_path):
    path, there = tmp_path / "scan.nii.gz", affine(ORIENTATION, (3, -4, 5))
    values = np.random.default_rng(0).integers(0, 200, (32, 32, 32), np.uint8)
    again = volumes.conform(nibabel.MGHImage(values, there), 32)
    assert np.array_equal(again.dataobj, values)
    assert np.array_equal(again.affine, there)
    image = nibabel.Nifti1Image(head((20, 20, 20))[..., None], np.eye(4))  # one frame
    image.set_data_dtype(np.uint8)
    nibabel.save(image, path)
    scan = volumes.read_scan(path)
    assert np.abs(scan.get_fdata() - head((20, 20, 20))).max() < 1 / 255
    assert np.asarray(volumes.conform(scan, 32).dataobj).max() == 255


QFORM = affine(np.diag([1.0, 1.2, 0.9]), (-15, -18, -20))
TURNED = affine(np.array([[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, 1]]), (0, 0, 0))
DIFFER = "its qform and sform differ. The qform is used, as in FastSurfer."
ORIENTATIONS = {  # qform, sform and the warning; all but the last have QFORM as their affine
    "equal": (QFORM, QFORM, None),
    "rotated": (QFORM, TURNED @ QFORM, DIFFER),
    "mirrored": (QFORM, np.diag([-1, 1, 1, 1]) @ QFORM, DIFFER),
    "another scale": (QFORM, QFORM @ np.diag([0.95, 1, 1, 1]), DIFFER),
    "only a qform": (QFORM, None, None),
    "only an sform": (None, QFORM, None),
    "neither": (None, None, "its header has no orientation. Which side is left is a guess."),
}


@pytest.mark.parametrize("name", ORIENTATIONS)
def test_the_qform_is_the_orientation_and_doubts_are_warnings(name, tmp_path, recwarn):
    (qform, sform, says), path = ORIENTATIONS[name], tmp_path / "scan.nii.gz"
    image = nibabel.Nifti1Image(head((9, 8, 7))[..., None], None)  # one frame
    image.header.set_zooms((1, 1.2, 0.9, 1))
    image.set_qform(qform, 1 if qform is not None else 0)
    image.set_sform(sform, 4 if sform is not None else 0)
    nibabel.save(image, path)
    scan = volumes.read_scan(path)
    assert np.allclose(scan.affine, QFORM, atol=1e-5) == (name != "neither")
    assert [str(warning.message) for warning in recwarn] == [f"{path}: {says}"] * bool(says)


def test_a_scan_longer_than_the_grid_is_cut_with_a_warning():
    image = nibabel.Nifti1Image(head((20, 30, 40)), np.diag([1, 1.5, 1.25, 1]))
    with pytest.warns(
        UserWarning, match=r"^the scan is 50\.0 mm long\. 2\.0 mm are cut off, half at each end"
    ):
        volumes.conform(image, 48)
    volumes.conform(image, 50)


def nifti(values: np.ndarray, header: float = 1, voxel: float = 1, offset: float = 0) -> nibabel.Nifti1Image:
    """A scan, whose header may have another length of its voxels along the first axis."""
    image = nibabel.Nifti1Image(values, affine(np.diag([voxel] * 3), (offset, 0, 0)))
    if header != 1:
        image.header.set_sform(np.diag([header, 1, 1, 1]), code=1)
        image.header.set_qform(None, code=0)
    return nibabel.Nifti1Image(values, None if header != 1 else image.affine, image.header)


VALUES = head((8, 8, 8)).astype(np.float32)
BROKEN = {
    r"its shape is \(8, 8, 8, 2\)": nifti(np.stack([VALUES] * 2, axis=-1)),
    "its type is complex64": nifti(VALUES.astype(np.complex64)),
    "some of its values are not finite": nifti(np.where(VALUES.max() == VALUES, np.nan, VALUES)),
    "all of its values are 0.0": nifti(0 * VALUES),
    r"\[1.0, 1.0, 1.0\] mm and \[2.0, 1.0, 1.0\]": nifti(VALUES, header=2),
    r"must have voxels of 0.1 to 10 mm, .* \[\[0.009": nifti(VALUES, voxel=0.01),
    "at most 100 m from the origin, but .* inf": nifti(VALUES, offset=np.inf),
    "cannot be read as a volume": gzip.compress(nifti(VALUES).to_bytes()[:200]),
    "cannot be read as a volume: .*": b"this is no volume",
}


def test_other_files_are_refused_in_one_line(tmp_path):
    path = tmp_path / "scan.nii.gz"
    for says, content in BROKEN.items():
        path.write_bytes(content) if isinstance(content, bytes) else nibabel.save(content, path)
        with pytest.raises(ValueError, match=rf"^{path} [^\n]*{says}[^\n]*$"):
            volumes.read_scan(path)
    for shape in ((1, 1, 2), (8, 8, 1)):
        values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        with pytest.raises(ValueError, match="is empty after resampling"):
            volumes.conform(nibabel.Nifti1Image(values, np.eye(4)), 32)


@pytest.mark.parametrize("suffix", [".nii.gz", ".mgz", ".nii.bz2"])
def test_a_flipped_bit_in_a_compressed_scan_is_noticed(tmp_path, suffix):
    path, kind = tmp_path / f"scan{suffix}", nibabel.MGHImage if suffix == ".mgz" else nibabel.Nifti1Image
    nibabel.save(kind((900 * head((20, 20, 20))).astype(np.int16), np.eye(4)), path)
    expected = volumes.read_scan(path).get_fdata()
    for broken in damaged(path.read_bytes(), 30, first=20):
        path.write_bytes(broken)
        try:  # some bits have no meaning, such as those after the end of the last block
            assert np.array_equal(volumes.read_scan(path).get_fdata(), expected)
        except ValueError as error:
            (line,) = str(error).splitlines()
            assert line.startswith(f"{path} cannot be read as a volume: ")


# Slices, sums and labels.


def test_weighted_scores_of_a_slice_and_its_neighbours_are_added_where_it_was_cut():
    volume = np.random.default_rng(0).integers(0, 6, (16, 48, 32)).astype(np.uint8)
    batches, expected = [], np.zeros(volume.shape)

    class Network(zoo.FastSurferCNN):
        def __call__(self, x: mx.array) -> mx.array:
            """A sum for class 1 that depends on the order of all seven slices."""
            batches.append(len(x))
            around = (x * 255 * mx.arange(1, 8)).sum(axis=-1, keepdims=True)
            return around * (mx.arange(self.config["num_classes"]) == 1)

    models = {name: Network(count, num_filters=1) for name, count in COUNTS.items()}
    total = volumes.scores_of(volume, models, batch=5)
    for axis, weight in enumerate((0.2, 0.4, 0.4)):  # sagittal, axial, coronal
        padded = np.pad(volume.astype(float), [(3, 3) if n == axis else (0, 0) for n in range(3)], "edge")
        around = sum((n + 1) * padded.take(range(n, n + volume.shape[axis]), axis) for n in range(7))
        expected += weight * around
        others = np.array(volumes.sagittal_channels()) == 1 if axis == 0 else np.arange(79) == 1
        total[..., others] -= (weight * around)[..., None].astype(np.float16)
    assert np.abs(total).max() < 0.2
    assert (sum(batches), max(batches)) == (sum(volume.shape), 5)


def test_the_table_has_the_classes_of_the_networks_of_which_the_sagittal_one_has_one_side(tmp_path):
    both = volumes.with_both_hemispheres()
    assert len(both) == 96  # 95 structures and the background
    assert [entry["label"] for entry in both] == sorted(entry["label"] for entry in both)
    names = {entry["label"]: entry["name"] for entry in both}
    assert (names[17], names[2031]) == ("Left-Hippocampus", "ctx-rh-supramarginal")
    (tmp_path / "labels.txt").write_text(volumes.colour_table(both))
    assert zoo.read_classes(tmp_path / "labels.txt") == both
    # The order of the table in FastSurfer's source for the 51 classes of the sagittal network.
    expected = [0, *range(5, 14), *range(1, 4), 14, 15, 4, *range(16, 19), *range(5, 51)]
    expected += [20, 22, 27, *range(29, 32), 33, 34, *range(38, 43), 45]
    assert volumes.sagittal_channels() == expected


@pytest.mark.parametrize(
    ("missing", "limit", "voxel_limit"),
    [((), 19.5, 19.5), ((41,), 24.5, 0), ((2,), 14.5, 27.5), ((2, 41), 0, 0)],
    ids=["both sides", "left", "right", "no white matter"],
)
def test_regions_go_to_the_nearer_hemisphere_as_in_fastsurfer(missing, limit, voxel_limit):
    """A side without white matter has the centre of the volume. Smoothed white matter decides for 1026."""
    labels = np.zeros((40, 20, 20), np.int16)
    labels[4:16, 5:15, 5:15], labels[24:36, 5:15, 5:15] = 41, 2  # high first indices are on the left
    labels[38:, 16:] = 2  # an island, which does not move the centre
    labels[np.isin(labels, missing)] = 0
    expected = labels.copy()
    for first in range(2, 40, 3):
        labels[first, :3, :3], expected[first, :3, :3] = 1003, 2003 if first < limit else 1003
    # Both are across the midline: one is in one side as a whole, the other is divided.
    labels[6:30, 17:19, 8:12], expected[6:30, 17:19, 8:12] = 1007, 2007 if limit > 17.5 else 1007
    labels[8:32, 15, 8:12] = 1026
    expected[8:32, 15, 8:12] = np.where(np.arange(8, 32) < voxel_limit, 2026, 1026)[:, None]
    assert np.array_equal(volumes.split_hemispheres(labels), expected)


# All of it.


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    """A folder with a model for each plane, a scan and a smaller one."""
    folder = tmp_path_factory.mktemp("brain")
    mx.random.seed(0)
    for name, classes in COUNTS.items():
        model = zoo.MODELS["fastsurfer_cnn"](classes, num_filters=2, kernel_h=3, kernel_w=3)
        model.about.plane = name
        model.save_pretrained(folder / "models" / name)
    for name, shape in (("scan", (40, 38, 30)), ("small", (15, 12, 10))):
        values = (900 * head(shape)).astype(np.int16)
        nibabel.save(nibabel.Nifti1Image(values, affine(TILTED, (20, -20, -15))), folder / f"{name}.nii.gz")
    return folder


def test_the_program_writes_labels_a_colour_table_and_a_picture(folders, tmp_path):
    scan, models, output = folders / "scan.nii.gz", folders / "models", tmp_path / "out"
    done = call("brain_segment.py", scan, "--models", models, "--output", output, "--size", 48)
    assert done.stderr == ""  # no progress bar in a pipe
    assert " ml. Results are in " in done.stdout
    names = {path.name for path in output.iterdir()}
    assert names == {"scan.mgz", "labels.mgz", "labels.nii.gz", "labels.txt", "labels.png"}
    assert (output / "labels.png").read_bytes().startswith(b"\x89PNG")
    labels, expected = nibabel.load(output / "labels.mgz"), volumes.conform(volumes.read_scan(scan), 48)
    assert np.array_equal(nibabel.load(output / "scan.mgz").dataobj, expected.dataobj)
    assert np.array_equal(labels.affine, expected.affine)
    assert labels.get_data_dtype().name == "int16"
    known = {entry["label"] for entry in zoo.read_classes(output / "labels.txt")}
    assert set(np.unique(labels.dataobj)) <= known
    loaded = {name: zoo.from_pretrained(models / name) for name in COUNTS}
    best = volumes.scores_of(np.asarray(expected.dataobj), loaded).argmax(axis=-1)
    again = volumes.split_hemispheres(np.array([entry["label"] for entry in volumes.CLASSES])[best])
    assert np.array_equal(labels.dataobj, again)
    # On the grid of the scan: the nearest label, 0 outside.
    found, points = nibabel.load(output / "labels.nii.gz"), voxels_in(nibabel.load(scan), labels)
    assert np.allclose(found.affine, nibabel.load(scan).affine)
    assert found.get_data_dtype() == np.int16
    on_scan = map_coordinates(np.asarray(labels.dataobj), points, order=0)
    # Rounding decides in the middle between two voxels and at the edges.
    edge = np.minimum(np.abs(points), np.abs(points - 47))
    clear = (np.minimum(np.abs(points % 1 - 0.5), edge) > 1e-3).all(axis=0)
    assert clear.mean() > 0.7
    assert np.array_equal(np.asarray(found.dataobj)[clear], on_scan[clear])


def test_each_error_is_one_line_and_leaves_no_folder(folders, tmp_path):
    scan, models, wrong = folders / "scan.nii.gz", folders / "models", tmp_path / "wrong"

    def fails(*words: object) -> str:
        words = *words, "--output", tmp_path / "out", "--size", 32
        (line,) = call("brain_segment.py", *words, status=1).stderr.splitlines()
        assert not (tmp_path / "out").exists()
        return line

    def fails_with(coronal: str, **plane: object) -> str:
        """With this model for coronal slices, perhaps of another plane."""
        model = zoo.from_pretrained(models / coronal)
        model.about = model.about.model_copy(update=plane)
        shutil.copytree(models, wrong, dirs_exist_ok=True)
        model.save_pretrained(wrong / "coronal")
        return fails(scan, "--models", wrong)

    assert "none.nii.gz" in fails(tmp_path / "none.nii.gz", "--models", models)
    missing = fails(scan, "--models", tmp_path / "none")
    assert "mlx_unpool_zoo convert fastsurfer_vinn" in missing
    assert [p.name for p in volumes.PLANES if f"aparc_vinn_{p.name}_v2.0.0.pkl" not in missing] == []
    assert "79 classes" in fails_with("sagittal")
    says = f"{wrong / 'coronal' / 'config.json'}: 'plane' must be 'coronal', but got 'axial'"
    assert says in fails_with("axial")
    assert "must have different weights, but they are" in fails_with("axial", plane="coronal")
    weights = wrong / "coronal" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert str(weights) in fails(scan, "--models", wrong)


def test_no_fault_damages_a_file(folders, tmp_path):
    words = [folders / "small.nii.gz", "--models", folders / "models", "--size", 16, "--output"]
    check_faults("brain_segment.py", lambda output: [*words, output], folders, tmp_path)


def test_sides_in_the_picture_are_those_of_the_scan(tmp_path, monkeypatch):
    figures, labels = [], np.zeros((32, 32, 32), np.int16)
    labels[20:30] = 2  # white matter; the first axis of a conformed scan points left
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    brain_segment.draw(np.zeros(labels.shape), labels, tmp_path / "labels.png")
    for number, axis in enumerate(figures[0].axes):
        sides = {text.get_text(): text.get_position()[0] for text in axis.texts}
        assert (set(sides) == {"L", "R"}) == (volumes.PLANES[number // 4].name != "sagittal")
        if sides:
            coloured = np.nonzero(axis.images[1].get_array())[1].mean() / 31
            assert abs(sides["L"] - coloured) < abs(sides["R"] - coloured)
