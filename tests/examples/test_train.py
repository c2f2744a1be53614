"""The programs that train on pictures and masks and that label pictures.

Both also with weights from PyTorch.
"""

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from helpers.faults import contents, ctrl_c_raises
from helpers.masks import BLOCKS, COLOURS, TRUTH, TURNED, encoded, put, write
from helpers.programs import call
from helpers.small_models import randomised, save_state, small_model, vgg16_state
from mlx.utils import tree_flatten
from mlx_unpool_zoo import runs
from mlx_unpool_zoo.batches import Pictures
from mlx_unpool_zoo.commands import train
from mlx_unpool_zoo.commands.outputs import reserved
from mlx_unpool_zoo.data import read
from mlx_unpool_zoo.drawing import overlaid
from mlx_unpool_zoo.enet import ENet
from mlx_unpool_zoo.training import StopRequest, weighted_cross_entropy
from PIL import Image

TALL = BLOCKS.repeat(2, 0)[:32, :32]
ROOT = Path(__file__).parents[2]
# A published checkpoint, two pictures of CamVid, and the scores and classes of PyTorch for them.
ENET_CAMVID = Path(os.environ.get("ENET_CAMVID", ROOT.parent / "shared" / "enet_camvid"))


# Data.


def test_photographs_are_turned_and_reduced_with_their_masks(tmp_path):
    truth = np.kron(TRUTH % 2, np.ones((20, 20), np.uint8))  # 60 x 80
    write(tmp_path, [truth * 9])  # an average of two numbers would be another class
    photograph = encoded(np.rot90(truth * 255), "JPEG", exif=TURNED, quality=95)
    put(tmp_path, {"images/0.png": photograph})
    ((picture, reduced),) = read([tmp_path], 30)["train"].pairs
    assert (picture.shape, reduced.shape) == ((30, 40, 3), (30, 40))
    middle = np.s_[5::10, 5::10]
    assert np.array_equal(picture[..., 0][middle] > 127, TRUTH % 2)
    assert np.array_equal(reduced, truth[1::2, 1::2])


def test_batches_are_squares_mirrored_with_their_classes_and_padding_does_not_count():
    random, truths = np.random.default_rng(0), [(20, 24), (17, 30), (8, 16)]
    pairs = [(t[..., None].repeat(3, 2) * 9, t) for t in (random.integers(0, 3, s) for s in truths)]
    data = Pictures([(p.astype(np.uint8), t.astype(np.uint8)) for p, t in pairs], [{}] * 3)
    model = ENet(3)
    model.about.input["normalisation"] = None
    weights, flips = data.class_weights(), set()
    counts = np.bincount(np.concatenate([t.ravel() for _, t in pairs]))
    assert weights[:3] == pytest.approx(1 / np.log(1.02 + counts / counts.sum()))
    assert weights[255] == 0
    same = replace(data, weighted=False).class_weights()
    assert (same[:255].tolist(), same[255]) == ([1] * 255, 0)
    for _, (inputs, classes, weight) in zip(range(40), data.batches(model, 2, 0)):
        assert inputs.shape == (2, 16, 16, 3)  # a multiple of 8 below the median of 17
        for picture, truth, each in zip(*map(np.array, (inputs, classes, weight)), strict=True):
            counted = each > 0
            assert counted.all() or (~counted).sum() == 8 * 16  # the flat picture, padded below
            assert np.array_equal(picture[counted][:, 0], truth[counted] * 9)
            assert np.array_equal(each[counted], weights[truth[counted]])
            small = pairs[2][1][:, :16]
            flips.update(s for s in (1, -1) if np.array_equal(truth[:8], small[:, ::s]))
    assert flips == {1, -1}
    assert next(data.batches(model, 2, 0, crop=24))[0].shape == (2, 24, 24, 3)
    with pytest.raises(ValueError, match=r"multiples of 8, but got \(1, 48, 60, 3\)"):
        model(mx.zeros((1, 48, 60, 3)))
    ignored = mx.zeros((1, 2, 2, 3)), mx.zeros((1, 2, 2), mx.int32), mx.zeros((1, 2, 2))
    assert weighted_cross_entropy(*ignored).item() == 0


def test_metrics_leave_ignored_pixels_and_classes_out(monkeypatch):
    truths = np.array([[[0, 0, 1, 1], [255] * 4], [[0, 1, 255, 255]] * 2], np.uint8)
    said = iter(np.array([[[0, 0, 0, 2], [1] * 4], [[0, 0, 1, 1]] * 2], np.uint8))
    names, model = ("sky", "road", "sea", "absent"), ENet(4)
    monkeypatch.setattr(model, "predict", lambda picture: next(said))
    data = Pictures([(truth, truth) for truth in truths], [{"name": name} for name in names])
    found = data.metrics_of(model)
    assert found["iou"] == {"sky": pytest.approx(4 / 7), "road": 0, "sea": 0}
    assert (found["miou"], found["pixel_accuracy"]) == (pytest.approx(4 / 7 / 3), 1 / 2)
    assert found["boundary_f_score"] == 0  # only the boundary in the second picture counts
    assert found["confusion"] == [[4, 0, 0, 0], [3, 0, 1, 0], [0] * 4, [0] * 4]
    assert model.training


def test_a_model_that_does_not_fit_is_named_before_training(tmp_path):
    small_model("quicknat")[0].save_pretrained(tmp_path / "q")
    options = "--data", write(tmp_path / "d", [BLOCKS] * 5), "--output", tmp_path / "out"
    for model, said in (
        ("no/such", "--model must be segnet, enet, digits, hair or the folder of a model"),
        (tmp_path / "q", "--model must segment RGB images, unlike"),
    ):
        (line,) = call("train", *options, "--model", model, status=1).stderr.splitlines()
        assert said in line
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not ENET_CAMVID.is_dir(), reason="the trained ENet is not here (ENET_CAMVID)")
def test_a_trained_enet_gives_what_pytorch_gives_on_camvid(tmp_path):
    expected = np.load(ENET_CAMVID / "reference.npz")
    source, names = ENET_CAMVID / "best_model.pth", ("0001TP_006690", "0016E5_07959")
    call("convert", "enet", source, tmp_path / "enet", "--input", "raw")
    pictures = [ENET_CAMVID / f"{name}.png" for name in names]
    call("predict", tmp_path / "enet", *pictures, "--output", tmp_path / "classes.png")
    for name in names:
        with Image.open(tmp_path / f"classes-{name}.png") as labels:
            assert (np.array(labels) == expected[f"{name}_classes"]).mean() > 0.9999


# Training and prediction.


def test_training_on_a_folder_starting_from_its_model_and_labelling_pictures(tmp_path):
    data = write(tmp_path / "data", {str(n): COLOURS[np.roll(BLOCKS, n)] for n in range(6)})
    test = write(tmp_path / "test", [COLOURS[BLOCKS]] * 6, "i m")
    table, output, folder = tmp_path / "names.txt", tmp_path / "out", tmp_path / "out" / "segnet"
    table.write_text("#000000 rock\n#00a0ff sea\n#ff5000 fire\n")
    options = "--model", "segnet", "--decoder", "skip", "--decoder-kernel", 5, "--crop", 20
    options = *options, "--test", test / "i", test / "m", "--classes", table
    said = call("train", "--smoke", *options, "--data", data, "--output", output)
    assert said.stdout.startswith(
        "segnet: 5 images, 1 for validation, 6 for test, 3 classes (rock, sea, f"
    )
    assert {path.name for path in output.iterdir()} == {"segnet", *train.FILES}
    report, model = json.loads((output / "metrics.json").read_text()), zoo.from_pretrained(folder)
    assert (model.config["decoder"], model.config["decoder_kernel"]) == ("skip", 5)
    assert model.about.classes[1] == {"name": "sea", "colour": [0, 160, 255]}
    assert f"validation mean IoU {report['validation']['miou']:.3f}, the best so far" in said.stdout
    records = read([data], 256, table, others={"test": [test / "i", test / "m"]}, divided=True)
    for split in ("validation", "test"):
        found = Pictures.of(records[split]).metrics_of(model)
        assert found == report[split]  # of the weights that were written
    assert model.about.input["side"] == 256

    # A second run: fewer classes, separate validation pictures, half the size, 16 bits.
    other = write(tmp_path / "other", dict.fromkeys("ab", BLOCKS % 2))
    grey = Image.fromarray(BLOCKS.astype(np.uint16) * 400)
    put(other, {"images/a.png": grey, "images/b.png": grey})
    validation = write(tmp_path / "validation", dict.fromkeys("ab", BLOCKS % 2))
    dark = Image.fromarray(BLOCKS.astype(np.uint16) * 200)
    put(validation, {"images/a.png": dark, "images/b.png": dark})
    options = "--data", other, "--validation", validation, "--side", 12
    with pytest.warns(UserWarning, match="new random values: classifier"):
        said = call(
            "train", "--smoke", "--model", folder, *options, "--output", tmp_path / "b"
        ).stdout
    assert said.startswith("segnet: 2 images, 2 for validation, 2 classes (0, 1).\n")
    assert "black is 0 and white 800.\n" in said
    again = zoo.from_pretrained(tmp_path / "b" / "segnet")
    classes = [(entry["name"], entry["label"]) for entry in again.about.classes]
    assert classes == [("0", 0), ("1", 1)]

    # Larger pictures are reduced as in training; their label maps have the size of the pictures.
    drawing = tmp_path / "new" / "classes.png"
    call("predict", tmp_path / "b" / "segnet", other / "images", "--output", drawing)
    (seen, _), _ = read([other], 12)["train"].pairs
    with Image.open(tmp_path / "new" / "classes-a.png") as labels:
        assert np.array_equal(labels, again.predict(seen).repeat(2, 0).repeat(2, 1))
        assert np.array_equal(labels, again.predict(grey))
    assert drawing.read_bytes().startswith(b"\x89PNG")


def test_a_segnet_starts_from_the_encoder_of_vgg16(tmp_path):
    expected, state = vgg16_state()
    source = save_state(tmp_path / "vgg16_bn.safetensors", state)
    call("convert", "segnet", source, tmp_path / "start", "--config", "num_classes=3")
    data = write(tmp_path / "data", [np.roll(TALL, n) for n in range(5)])
    options = "--data", data, "--batch", 1, "--steps", 1, "--learning-rate", 1e-9
    call("train", *options, "--model", tmp_path / "start", "--output", tmp_path / "out")
    model = zoo.from_pretrained(tmp_path / "out" / "segnet")
    found, wanted = (dict(tree_flatten(m.encoder)) for m in (model, expected))
    weights = [name for name in wanted if name.endswith("conv.weight")]
    assert len(weights) == 13
    assert all(mx.allclose(found[name], wanted[name], atol=1e-6) for name in weights)


def test_the_same_command_continues_a_run_of_another_network(tmp_path):
    data = write(tmp_path / "data", [np.roll(BLOCKS, n) for n in range(5)])
    command = "train", "--data", data, "--batch", 1, "--output", tmp_path / "out"
    call(*command, "--steps", 1, "--model", "enet")
    said = call(*command, "--steps", 2, "--resume").stdout
    assert "Resuming after step 1 of 2." in said
    assert [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()] == ["enet"]


def test_a_second_ctrl_c_does_not_wait():
    with ctrl_c_raises(), StopRequest() as request:
        signal.raise_signal(signal.SIGINT)
        assert request.made
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_the_best_model_is_kept_and_no_run_is_replaced_unasked(tmp_path, monkeypatch):
    data = write(tmp_path / "data", {str(n): np.roll(BLOCKS, n) for n in range(6)})
    output, scores, seen = tmp_path / "out", [], []
    options = ["--model", "segnet", "--data", data, "--batch", 1, "--save-every", 1]
    options += ["--output", output]

    def metrics_of(data: Pictures, model: zoo.Model) -> dict:
        seen.append(dict(tree_flatten(model.parameters())))
        return {"miou": scores.pop(0), "boundary_f_score": 0, "pixel_accuracy": 0, "iou": {}}

    def refused(*more: object) -> str:
        """The line of a run that is refused and changes nothing."""
        before = contents(output)
        (line,) = call("train", *options, *more, status=1).stderr.splitlines()
        assert before == contents(output)
        return line

    def trained(*more: object) -> list[int]:
        """Train; the evaluations whose weights were those of the folder in the end."""
        seen.clear()
        call("train", *options, *more)
        kept = tree_flatten(zoo.from_pretrained(output / "segnet").parameters())
        return [
            n
            for n, each in enumerate(seen)
            if all(mx.array_equal(each[name], v) for name, v in kept)
        ]

    monkeypatch.setattr(Pictures, "metrics_of", metrics_of)
    assert refused("--resume").startswith("There is nothing to resume: ")
    scores += [0.5, 0.7, 0.6]
    assert trained("--steps", 3) == [1]
    says = "pass --resume to continue its run, --overwrite to replace it, or another --output."
    assert refused() == f"{output / 'segnet'} exists: {says}"
    for more in ([], ["--overwrite"]):
        line = refused("--model", "enet", *more)
        assert line == f"{output / 'segnet'} is the model of another run: pass another --output."
    assert refused("--resume", "--model", "enet").endswith("settings: model segnet, now enet")
    assert "--steps must be at least 3" in refused("--resume", "--steps", 2)
    assert refused("--resume", "--batch", 2).endswith(" with other settings: batch 1, now 2")
    with reserved("--output", output):
        says = f"--output must be another folder: another run writes to {output}."
        assert refused("--resume") == says

    scores += [0.6, 0.65, 0]  # the model in the folder stays; the last one is that of the report
    assert trained("--steps", 5, "--resume") == [2]
    log = np.genfromtxt(output / "log.csv", delimiter=",", names=True)
    assert log["step"].tolist() == [1, 2, 3, 4, 5]
    assert log["validation_miou"].tolist() == [0.5, 0.7, 0.6, 0.6, 0.65]
    assert (log["loss"] > 0).all()
    with monkeypatch.context() as patch:
        patch.setattr(runs, "loss_of", lambda model, x, *_: model(x).sum() * mx.nan)
        line = refused("--steps", 9, "--resume")
        assert line.startswith("The loss or a parameter is not finite in step 6 (loss nan)")
        patch.setattr(
            runs, "loss_of", lambda model, *_: signal.raise_signal(signal.SIGINT) or mx.array(0.0)
        )
        said = call(
            "train", *options, "--steps", 9, "--save-every", 4, "--resume", status=130
        ).stdout
    assert f"step 6 of 9: loss 0.000. {output / 'segnet'}/ has the best model.\n" in said
    scores += [0.1]
    assert trained("--overwrite", "--steps", 1) == [0]


def test_labelling_replaces_no_picture_and_needs_no_names_but_a_model_for_pictures(
    tmp_path, monkeypatch
):
    model, drawing = randomised(ENet(40)), tmp_path / "new" / "x.png"
    model.save_pretrained(tmp_path / "m")
    pictures = write(tmp_path, dict.fromkeys("ab", TRUTH)) / "images"
    (pictures / "b.png").write_bytes(b"no picture")
    result = call("predict", tmp_path / "m", pictures, "--output", drawing, status=1)
    assert "a.png: " in result.stdout
    line, last = result.stderr.splitlines()
    assert line.startswith(f"{pictures / 'b.png'} cannot be read as an image: ")
    assert last == "1 of 2 images were not labelled."
    assert {path.name for path in drawing.parent.iterdir()} == {"x.png", "x-a.png"}
    with (
        Image.open(pictures / "a.png") as image,
        Image.open(tmp_path / "new" / "x-a.png") as labels,
    ):
        assert np.array_equal(labels, model.predict(image))
    call("predict", tmp_path / "m", pictures / "a.png", "--output", tmp_path / "figure.svg")
    assert "<!-- a.png -->" in (tmp_path / "figure.svg").read_text()
    monkeypatch.chdir(tmp_path)
    call("predict", "m", pictures / "a.png", "--probabilities")
    names = {path.name for path in Path("runs").iterdir()}
    assert names == {"classes.png", "classes-a.png", "classes-a.npy"}
    with Image.open(pictures / "a.png") as image:
        assert np.array_equal(np.load("runs/classes-a.npy"), model.probabilities(image))
    (pictures / "b.png").rename(pictures / "b-a.png")
    Path("linked.png").hardlink_to(pictures / "a.png")
    before = contents(tmp_path)
    for output in (pictures / "a.png", pictures / "b.png", "linked.png"):
        said = call("predict", "m", pictures, "--output", output, status=1).stderr
        assert said.startswith("--output would replace the input ")
    assert before == contents(tmp_path)
    picture, colours = np.full((1, 5, 3), (200, 100, 0)), ([255, 9, 9], [0, 200, 100])
    classes = [{"name": n, "colour": c} for n, c in zip("0a", colours)]
    found = overlaid(picture, np.array([[0, 1, 255, 255, 255]]), classes)[0]
    assert found.tolist() == [[200, 100, 0], [110, 145, 45], *[[137, 122, 107]] * 2, [200, 100, 0]]
    small_model("quicknat")[0].save_pretrained("quicknat")
    (line,) = call("predict", "quicknat", pictures, status=1).stderr.splitlines()
    assert "does not segment images: it is a quicknat, 2-D, for 1 channels" in line


def test_a_class_that_the_trained_network_in_the_package_has_needs_no_pixel(tmp_path):
    folder = write(tmp_path / "data", [np.minimum(BLOCKS, 1)] * 5)
    (folder / "classes.txt").write_text("0 background\n1 0\n2 1\n3 4\n4 7\n")
    options = "--data", folder, "--steps", 1, "--batch", 1, "--output", tmp_path / "run"
    said = call("train", *options, "--model", "digits").stdout
    assert "Warning: no mask for train has 1, 4, 7." in said
    call("train", *options, "--resume", "--steps", 2)
    new = call("train", *options[:-1], tmp_path / "new", status=1).stderr
    assert "no training mask has " in new


# Several processes.


@pytest.fixture
def second_process(monkeypatch):
    """This process is the second of two that mlx.launch started."""
    world = SimpleNamespace(size=lambda: 2, rank=lambda: 1)
    monkeypatch.setattr(mx.distributed, "init", lambda: world)


def test_the_second_process_writes_no_class_file(second_process, tmp_path):
    folder = write(tmp_path, [BLOCKS] * 5)
    (folder / "classes.txt").unlink()
    assert train.main(["--data", str(folder), "--write-classes"]) == 0
    assert not (folder / "classes.txt").exists()


def test_training_in_several_processes_is_refused(second_process, tmp_path):
    folder = write(tmp_path, [BLOCKS] * 5)
    with pytest.raises(ValueError, match=r"one process, but mlx\.launch started 2"):
        train.main(["--data", str(folder), "--output", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()
