"""Compare decoders: train a SegNet with unpooling and one with nearest-neighbour upsampling, and draw both.

    python examples/compare_decoders.py
    python examples/compare_decoders.py --decoder unpool nearest bilinear skip --seeds 0 1 2

The networks find handwritten digits on photographs, in scenes that the program draws. The folder --output
gets a folder for each network, metrics.json and the figure segnet.png. The same command again continues a
comparison that was interrupted, and replaces a finished one.
"""

import contextlib
import itertools
import json
import math
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from mlx_unpool_zoo.commands.command_line import group, parser_of, run_program

with group("examples"):
    import mlx.core as mx
    import mlx_unpool_zoo as zoo
    import numpy as np
    from digit_scenes import LARGEST_DIGIT, SPLITS, DrawnScenes, scenes_to_evaluate
    from mlx.utils import tree_flatten
    from mlx_unpool_zoo.batches import Pictures
    from mlx_unpool_zoo.commands.outputs import reserved
    from mlx_unpool_zoo.commands.train import (
        CHECKPOINT,
        METRICS,
        SETTINGS,
        add_training_options,
        check_training_options,
        draw,
        print_report,
        remove_files,
        settings_of,
        shown,
        trained,
        write_json,
    )
    from mlx_unpool_zoo.metrics import SCORES
    from mlx_unpool_zoo.segnet import DECODERS

FIGURE = "segnet.png"
SCENES = {"validation": 25, "test": 100}  # that are evaluated; the scores that are compared are of the test
LICENCE = "https://github.com/mlx-unpool/mlx-unpool/blob/main/LICENSE"  # of the network in the package
NAMES = {
    "unpool": "unpooling",
    "nearest": "nearest neighbour",
    "bilinear": "bilinear upsampling",
    "skip": "skip connections",
}
# The best of 0.005, 0.01 and 0.02 on the validation scenes with seed 0, after 300 steps with --crop 32.
LEARNING_RATES = {"unpool": 0.01, "nearest": 0.005, "bilinear": 0.005, "skip": 0.01}


def parse_arguments() -> Namespace:
    """Parse and check the command line."""
    parser = parser_of(None, __doc__)
    add = parser.add_argument
    add("--decoder", choices=DECODERS, nargs="+", default=["unpool", "nearest"])
    add("--seeds", "--seed", type=int, nargs="+", default=[0], help="seed of weights and data (default: 0)")
    digits = 'also write the first network to this folder in float16: how from_pretrained("digits") was made'
    add("--digits", type=Path, metavar="FOLDER", help=digits)
    add("--crop", type=int, default=24, help="side of the training scenes, in pixels (default: 24)")
    add_training_options(parser, steps=250, batch=8, learning_rate=None, output=Path("runs/compare"))
    arguments = parser.parse_args()
    if arguments.crop < LARGEST_DIGIT:
        parser.error(f"--crop must be {LARGEST_DIGIT} or more, the side of the largest digits")
    check_training_options(parser, arguments, smoke=6)
    return arguments


def runs_of(arguments: Namespace) -> dict[str, Namespace]:
    """The arguments of the run for each decoder and seed, by its name."""
    runs = {}
    fixed = dict.fromkeys(SETTINGS) | {"model": "segnet", "decoder_kernel": 3, "norm": "batch"}
    for seed, decoder in itertools.product(arguments.seeds, arguments.decoder):
        run = Namespace(**(fixed | vars(arguments)))
        run.learning_rate = arguments.learning_rate or LEARNING_RATES[decoder]
        run.decoder, run.seed, run.output = decoder, seed, arguments.output / f"{decoder}-seed{seed}"
        runs[run.output.name] = run
    return runs


def trained_as(run: Namespace, splits: dict[str, Pictures]) -> tuple[zoo.Model, dict[str, Any]]:
    """The best network of a run and its metrics."""
    classes = splits["train"].classes
    mx.random.seed(run.seed)
    model = zoo.SegNet(len(classes), decoder=run.decoder, decoder_kernel=run.decoder_kernel, norm=run.norm)
    model.about.classes = classes
    model.about.source = "trained by examples/compare_decoders.py on drawn digits"
    # An evaluation takes as long as ten steps.
    options: Any = {"evaluate_every": run.steps, "description": f"{run.decoder}, seed {run.seed}"}
    return trained(model, splits, run, **options)


def main() -> int:
    """Run the program and return the exit status."""
    arguments = parse_arguments()
    evaluated = {}
    for split, count in SCENES.items():
        evaluated[split] = scenes_to_evaluate(split, 5 if arguments.smoke else count)
    splits = {"train": DrawnScenes([], evaluated["test"].classes), **evaluated}
    runs = runs_of(arguments)
    if mx.distributed.init().rank() > 0:
        for run in runs.values():
            trained_as(run, splits)
        return 0
    started = time.perf_counter()
    with reserved("--output", arguments.output):
        compared = prepare(runs, splits, arguments)
        print_task(runs, splits)
        reports = compare(runs, splits, compared, arguments.output)
    means = {decoder: mean_of(found) for decoder, found in reports.items()}
    print_scores(reports, means)
    write_digits(next(iter(runs.values())).output / zoo.SegNet.model_type, arguments.digits)
    folders = f"a folder for each network ({', '.join(runs)}) in {arguments.output}/"
    print(f"\nWrote {FIGURE}, {METRICS} and {folders}.")
    print(f"Done in {time.perf_counter() - started:.0f} s.")
    if len(means) > 1:
        print(f"\n{conclusion(means)} See {arguments.output / FIGURE}.")
    return 0


def compare(
    runs: dict[str, Namespace], splits: dict[str, Pictures], compared: dict[str, dict], output: Path
) -> dict[str, list[dict[str, Any]]]:
    """Train the networks one after the other, and draw them. Return the test metrics of each decoder."""
    reports: dict[str, list[dict]] = {}
    models: dict[str, zoo.Model] = {}
    for number, (name, run) in enumerate(runs.items(), start=1):
        run.resume = (run.output / CHECKPOINT).exists()
        model, report = trained_as(run, splits)
        parameters = sum(value.size for _, value in tree_flatten(model.trainable_parameters()))
        compared[name] = {"parameters": parameters} | report
        write_json(output / METRICS, {"compared": compared})
        reports.setdefault(run.decoder, []).append(report["test"])
        models.setdefault(f"predicted: {run.decoder}", model)
        text = f"test mean IoU {shown(report['test']['miou'])}. Networks left: {len(runs) - number}."
        print(f"{run.decoder}, seed {run.seed}: {text}", flush=True)
    draw(models, splits["test"], output / FIGURE)
    return reports


def print_scores(reports: dict[str, list[dict[str, Any]]], means: dict[str, dict[str, Any]]) -> None:
    """Print the mean test metrics of each decoder, and the mean IoU of each seed if there are several."""
    seeds = len(next(iter(reports.values())))
    if seeds == 1:
        print("\nTest images")
        print_report(means)
        return
    print(f"\nMean of {seeds} seeds, test images")
    print_report(means)
    for decoder, found in reports.items():
        scores = ", ".join(shown(each["miou"]) for each in found)
        print(f"mean IoU of each seed, {decoder}: {scores}")


def conclusion(means: dict[str, dict[str, Any]]) -> str:
    """A sentence that says with which decoders the outlines are best, by two digits of a score."""
    scores = {}
    for decoder, found in means.items():
        scores[NAMES[decoder]] = round(found["boundary_f_score"], 2)
    highest = max(scores.values())
    best = [name for name, score in scores.items() if score == highest]
    lower = [name for name, score in scores.items() if score < highest]
    others = sorted(lower, key=scores.__getitem__, reverse=True)
    names, score = " and ".join(best), f"boundary F-score {highest:.2f}"
    if not others:
        return f"Outlines are equally good with {names}: {score}."
    compared = ", ".join(f"{scores[name]:.2f} with {name}" for name in others)
    return f"Outlines are best with {names}: {score}, against {compared}."


def write_digits(network: Path, folder: Path | None) -> None:
    """Write a trained network in float16 on request: as ``from_pretrained("digits")``, in the package."""
    if folder is None:
        return
    model = zoo.from_pretrained(network, dtype="float16")
    model.about.licence, model.about.licence_link = "MIT", LICENCE
    model.save_pretrained(folder)


def print_task(runs: dict[str, Namespace], splits: dict[str, Pictures]) -> None:
    """Print what is trained, and on what."""
    others = ", ".join(f"{len(splits[name].pairs)} scenes for {name}" for name in SPLITS[1:])
    names = ", ".join(entry["name"] for entry in splits["train"].classes)
    print(f"Training {len(runs)} SegNets to find digits on photographs: {', '.join(runs)}.")
    print(f"New scenes in each step, {others}, {len(splits['train'].classes)} classes ({names}).", flush=True)


def prepare(
    runs: dict[str, Namespace], splits: dict[str, Pictures], arguments: Namespace
) -> dict[str, dict[str, Any]]:
    """Remove the results that a comparison replaces, and return those in its metrics.json.

    It lists every network whose training has started, so that no folder of another program is replaced. If
    all runs are finished, they are replaced; otherwise the finished ones with the same settings are kept.
    """
    output = arguments.output
    compared = read_json(output / METRICS).get("compared")
    refuse_other_files(runs, compared, output)
    unfinished = [run for run in runs.values() if not (run.output / METRICS).exists()]
    if arguments.resume:
        check_resumable(unfinished, output)
    for run in runs.values():
        settings = read_json(run.output / METRICS).get("settings", settings_of(run, splits))
        if arguments.overwrite or not unfinished or settings != settings_of(run, splits):
            remove_files(run.output)
    compared = {name: {} for name in runs} | (compared or {})
    write_json(output / METRICS, {"compared": compared})
    return compared


def check_resumable(unfinished: list[Namespace], output: Path) -> None:
    """Raise ValueError if none of the runs has a checkpoint."""
    if not any((run.output / CHECKPOINT).exists() for run in unfinished):
        raise ValueError(f"There is nothing to resume: {output} has no checkpoint of these runs.")


def refuse_other_files(runs: dict[str, Namespace], compared: dict | None, output: Path) -> None:
    """Raise ValueError for a file or folder that a comparison would replace, but did not write."""
    paths = [run.output for name, run in runs.items() if name not in (compared or {})]
    if compared is None:
        paths += [output / METRICS, output / FIGURE]
    if old := [path for path in paths if path.exists()]:
        raise ValueError(f"{old[0]} exists, and this program did not write it: pass another --output.")


def mean_of(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """The means of some metrics."""
    iou = {name: [report["iou"].get(name, math.nan) for report in reports] for name in reports[0]["iou"]}
    means = {key: np.mean([np.array(report[key], float) for report in reports]) for key in SCORES}
    return means | {"iou": {name: np.mean(values) for name, values in iou.items()}}


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file, empty if there is none."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        content = json.loads(path.read_text())
        return content if isinstance(content, dict) else {}
    return {}


if __name__ == "__main__":
    run_program(main)
