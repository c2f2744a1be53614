"""Training on drawn scenes: a few steps, results, data, interrupted runs and comparisons."""

import itertools
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import compare_decoders
import digit_scenes
import mlx.core as mx
import numpy as np
import pytest
from helpers.faults import contents
from helpers.masks import BLOCKS, write
from helpers.programs import call, environment
from mlx_unpool_zoo import batches, from_pretrained, runs
from mlx_unpool_zoo.segnet import SegNet

COMPARE = "compare_decoders.py", "--smoke", "--output"
DECODERS = "unpool", "nearest", "bilinear", "skip"


def test_decoders_and_seeds_are_compared_and_the_results_described(tmp_path):
    # After a few steps with smaller scenes, several networks find only background.
    result = call(*COMPARE, tmp_path, "--crop", 32, "--decoder", *DECODERS, "--seeds", 0, 1)
    record, names = json.loads((tmp_path / "metrics.json").read_text())["compared"], []
    for number, (seed, decoder) in enumerate(itertools.product((0, 1), DECODERS), start=1):
        names.append(f"{decoder}-seed{seed}")
        assert f"{decoder}, seed {seed}, step 6 of 6: loss" in result.stdout
        score = record[names[-1]]["test"]["miou"]
        line = f"{decoder}, seed {seed}: test mean IoU {score:.3f}. Networks left: {8 - number}.\n"
        assert line in result.stdout
        model = from_pretrained(tmp_path / names[-1] / "segnet")
        assert model.config["decoder"] == decoder
    assert list(record) == names
    assert len({run["test"]["miou"] for run in record.values()}) == 8  # of different networks
    parameters = [record[f"{decoder}-seed0"]["parameters"] for decoder in DECODERS]
    assert parameters[0] == parameters[1] == parameters[2] < parameters[3]  # it concatenates
    assert {path.name for path in tmp_path.iterdir()} == {*names, "metrics.json", "segnet.png"}
    mean = np.mean([record[f"skip-seed{seed}"]["test"]["miou"] for seed in (0, 1)])
    assert re.search(rf"\nmean IoU .* {mean:.3f}\n", result.stdout)
    assert result.stdout.startswith(
        "Training 8 SegNets to find digits on photographs: unpool-seed0, near"
    )
    last = result.stdout.splitlines()[-1]
    assert re.match(
        r"Outlines are best with [a-z ]+: boundary F-score 0\.\d\d, against 0\.\d\d with", last
    )
    assert last.endswith(f". See {tmp_path / 'segnet.png'}.")
    assert result.stderr == ""  # no progress bar


SENTENCES = {
    (0.904, 0.6): "best with unpooling: boundary F-score 0.90, against 0.60 with nearest neighbour",
    (0.66, 0.9): "best with nearest neighbour: boundary F-score 0.90, against 0.66 with unpooling",
    (0.904, 0.896): "equally good with unpooling and nearest neighbour: boundary F-score 0.90",
}


@pytest.mark.parametrize(("scores", "says"), SENTENCES.items())
def test_the_last_sentence_says_which_decoder_is_best_whichever_it_is(scores, says):
    named = zip(DECODERS, scores, strict=False)
    means = {decoder: {"boundary_f_score": score} for decoder, score in named}
    assert compare_decoders.conclusion(means) == f"Outlines are {says}."


def test_a_comparison_replaces_its_own_runs_and_continues_an_unfinished_one(tmp_path):
    call(*COMPARE, tmp_path)
    before, checkpoint = contents(tmp_path), tmp_path / "nearest-seed0" / "checkpoint.safetensors"
    assert "Resuming" not in call(*COMPARE, tmp_path).stdout
    assert contents(tmp_path) == before
    (line,) = call(*COMPARE, tmp_path, "--resume", status=1).stderr.splitlines()
    assert line.startswith("There is nothing to resume: ")
    (tmp_path / "nearest-seed0" / "metrics.json").unlink()  # as if killed before it was written
    assert call(*COMPARE, tmp_path).stdout.count("Resuming after step 6 of 6.") == 2
    assert contents(tmp_path) == before
    (tmp_path / "nearest-seed0" / "metrics.json").unlink()
    (line,) = call(*COMPARE, tmp_path, "--batch", 4, status=1).stderr.splitlines()
    assert line.startswith(f"{checkpoint} was saved by a run with other settings: batch 8, now 4")
    call(*COMPARE, tmp_path, "--batch", 4, "--overwrite")
    assert "Resuming" not in call(*COMPARE, tmp_path, "--decoder", "skip").stdout
    assert len(json.loads((tmp_path / "metrics.json").read_text())["compared"]) == 3
    call(*COMPARE, tmp_path)  # finished with another batch
    of_runs = {path: content for path, content in before.items() if "seed" in str(path)}
    assert all(contents(tmp_path)[path] == content for path, content in of_runs.items())


@pytest.mark.parametrize("name", ["metrics.json", "segnet.png", "unpool-seed0/photo.jpg"])
def test_a_comparison_replaces_nothing_else(name, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"mine": 1}')
    before = contents(tmp_path)
    for more in ([], ["--overwrite"]):
        (line,) = call(*COMPARE, tmp_path, *more, status=1).stderr.splitlines()
        assert line.endswith(" exists, and this program did not write it: pass another --output.")
        assert contents(tmp_path) == before


@pytest.mark.parametrize("decoder", ["nearest", "bilinear", "skip"])
def test_the_other_decoders_do_not_use_indices(decoder):
    x, model = mx.random.normal((1, 15, 18, 3)), SegNet(11, decoder=decoder).eval()
    pooled, stages = model.encode(x)
    scores, without = model(x), [(None, 0 * features) for _, features in stages]
    assert scores.shape == (1, 15, 18, 11)
    assert not mx.array_equal(model.decode(0 * pooled, stages), scores)
    assert mx.array_equal(model.decode(pooled, without), scores) == (decoder != "skip")


def test_training_validation_and_test_data_are_disjoint():
    ids = [set(digit_scenes.digit_ids(split).tolist()) for split in batches.SPLITS]
    assert sum(map(len, ids)) == len(set.union(*ids)) == 720
    for parts in zip(*map(digit_scenes.photographs, batches.SPLITS), strict=True):
        photograph = np.concatenate(parts, axis=1)
        assert len({column.tobytes() for column in np.moveaxis(photograph, 1, 0)}) == 640


@pytest.mark.parametrize("compare", [False, True])
def test_an_interrupted_run_continues_with_the_same_result(compare, tmp_path, monkeypatch):
    """ENet has dropout."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    options = [*COMPARE[:-1], "--save-every", 2, "--decoder", "unpool", "--output"]
    if not compare:
        options = ["train", "--smoke", "--data", write(tmp_path / "data", [BLOCKS] * 5), "--output"]
    monkeypatch.setattr(sys, "orig_argv", ["python", "a file.py", "--overwrite"])

    def stopped(number: int, error: Exception | None, *more: str) -> str:
        """Run the program until one of its steps fails or, without an error, gets Ctrl-C."""
        steps, original = itertools.count(1), runs.loss_of

        def loss_of(*arguments: object) -> mx.array:
            if next(steps) == number:
                if error:
                    raise error
                signal.raise_signal(signal.SIGINT)
            return original(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(runs, "loss_of", loss_of)
            return call(*options, broken, *more, status=1 if error else 130).stdout

    result = call(*options, whole)
    assert not re.search(r"[^\n -~±]", result.stdout + result.stderr)  # nothing for a terminal
    assert re.search(r": \d steps on the [CG]PU\n", result.stdout)
    picture = whole / ("segnet.png" if compare else "predictions.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    said, last = stopped(2, None), 2
    assert re.search(r"after 2 of \d+ steps. To continue:\n    python 'a file.py' --resume\n", said)
    if compare:
        assert re.search(
            r"step 5 of 6: loss [\d.]+, [\d.]+ s per step, about \d+ s in all\n", result.stdout
        )
        stopped(3, OSError("as if killed"))
        last = 4
    assert f"Resuming after step {last} of" in call(*options, broken, "--resume").stdout
    files = lambda folder: {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")
    }
    one, other = files(whole), files(broken)
    assert [name for name in one | other if one.get(name) != other.get(name)] == []


def test_a_line_recommends_openblas_once_if_mlx_has_the_reference_blas_alone(tmp_path):
    has_reference = any(Path(mx.__file__).parents[1].glob("mlx_cpu.libs/libblas*"))
    program = "from mlx_unpool_zoo.progress import recommend_blas as f; f(); f()"
    empty = tmp_path / "libblas.so.3"
    subprocess.run(["g++", "-shared", "-x", "c++", "/dev/null", "-o", empty], check=True)
    for preloaded, lines in (("", has_reference), (empty, 0)):
        variables = environment() | {"LD_PRELOAD": str(preloaded)}
        printed = subprocess.check_output([sys.executable, "-c", program], env=variables, text=True)
        found = re.findall("^OpenBLAS .* apt install .*\n", printed)
        assert len(found) == printed.count("\n") == lines
