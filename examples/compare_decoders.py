"""Compare decoders: train a SegNet with unpooling and one with nearest-neighbour upsampling, and draw both.

    python examples/compare_decoders.py
    python examples/compare_decoders.py --decoder unpool nearest bilinear skip --seeds 0 1 2

The networks find handwritten digits on photographs, in scenes that the program draws. The folder --output
gets a folder for each network, metrics.json and the figure segnet.png. The same command again continues a
comparison that was interrupted, and replaces a finished one.
"""

import argparse
import contextlib
import json
import math
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from mlx_unpool_zoo.commands.command_line import extra, run_program

with extra("examples"):
    import mlx.core as mx
    import mlx_unpool_zoo as zoo
    import numpy as np
    from digit_scenes import SPLITS, DrawnScenes, scenes_to_evaluate
    from mlx.utils import tree_flatten
    from mlx_unpool_zoo.batches import Pictures
    from mlx_unpool_zoo.commands.outputs import check_output_folder, reserved
    from mlx_unpool_zoo.commands.train import (
        CHECKPOINT,
        METRICS,
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
# The best of 0.005, 0.01 and 0.02 on the validation scenes with seed 0.
LEARNING_RATES = {"unpool": 0.01, "nearest": 0.005, "bilinear": 0.005, "skip": 0.01}


def parse_arguments() -> Namespace:
    """Parse and check the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.epilog = "Ctrl-C stops after the current step; the same command again continues from there."
    add = parser.add_argument
    add("--decoder", choices=DECODERS, nargs="+", default=["unpool", "nearest"])
    add("--steps", type=int, default=300, help="training steps (default: 300)")
    add("--batch", type=int, default=8, help="batch size over all processes (default: 8)")
    add("--learning-rate", type=float, help="peak learning rate (default: see LEARNING_RATES)")
    add("--seeds", "--seed", type=int, nargs="+", default=[0], help="seed of weights and data (default: 0)")
    add("--save-every", type=int, default=100, help="steps between checkpoints (default: 100)")
    add("--output", type=Path, default=Path("runs/compare"), help="output folder (default: runs/compare)")
    add("--resume", action="store_true", help="continue, or an error if there is nothing to continue")
    add("--overwrite", action="store_true", help="train networks again that are finished")
    add("--smoke", action="store_true", help="a few steps only, to check that everything runs")
    arguments = parser.parse_args()
    arguments.decoder = list(dict.fromkeys(arguments.decoder))
    arguments.seeds = list(dict.fromkeys(arguments.seeds))
    if arguments.smoke:
        arguments.steps = 6
    if min(arguments.steps, arguments.batch, arguments.save_every) < 1:
        parser.error("--steps, --batch and --save-every must be 1 or more")
    if arguments.learning_rate is not None and not 0 < arguments.learning_rate < math.inf:
        parser.error("--learning-rate must be positive and finite")
    check_output_folder("--output", arguments.output)
    return arguments


def runs_of(arguments: Namespace) -> dict[str, Namespace]:
    """The arguments of the run for each decoder and seed, by its name."""
    runs = {}
    for seed in arguments.seeds:
        for decoder in arguments.decoder:
            run = runs[f"{decoder}-seed{seed}"] = Namespace(**vars(arguments))
            run.learning_rate = arguments.learning_rate or LEARNING_RATES[decoder]
            run.decoder, run.seed, run.output = decoder, seed, arguments.output / f"{decoder}-seed{seed}"
            run.model, run.side, run.crop, run.compile = "segnet", None, None, False
            run.encoder = run.class_weights = run.range = run.threshold = None
            run.decoder_kernel, run.norm = 3, "batch"
    return runs


def model_of(run: Namespace, classes: list[dict[str, Any]]) -> zoo.SegNet:
    """A new SegNet."""
    mx.random.seed(run.seed)
    model = zoo.SegNet(len(classes), decoder=run.decoder, decoder_kernel=run.decoder_kernel, norm=run.norm)
    model.about.classes = classes
    model.about.source = "trained by examples/compare_decoders.py on drawn digits"
    return model


def trained_as(run: Namespace, splits: dict[str, Pictures]) -> tuple[zoo.Model, dict[str, Any]]:
    """The best network of a run and its metrics."""
    # An evaluation takes as long as 20 steps.
    options: Any = {"evaluate_every": run.steps, "description": f"{run.decoder}, seed {run.seed}"}
    return trained(model_of(run, splits["train"].classes), splits, run, **options)


def main() -> int:
    """Run the program and return the exit status."""
    arguments = parse_arguments()
    count = 5 if arguments.smoke else 100
    splits: dict[str, Pictures] = {split: scenes_to_evaluate(split, count) for split in SPLITS[1:]}
    splits = {"train": DrawnScenes([], splits["test"].classes)} | splits
    runs = runs_of(arguments)
    if mx.distributed.init().rank() > 0:
        for run in runs.values():
            trained_as(run, splits)
        return 0
    return compare(runs, splits, arguments)


def compare(runs: dict[str, Namespace], splits: dict[str, Pictures], arguments: Namespace) -> int:
    """Train the networks one after the other. Print a table and draw a figure that compares them."""
    output, started, split = arguments.output, time.perf_counter(), "test"
    reports: dict[str, list[dict]] = {decoder: [] for decoder in arguments.decoder}
    models: dict[str, zoo.Model] = {}
    with reserved("--output", output):
        compared = prepare(runs, splits, arguments)
        print_task(runs, splits)
        for number, (name, run) in enumerate(runs.items(), start=1):
            run.resume = (run.output / CHECKPOINT).exists()
            model, report = trained_as(run, splits)
            parameters = sum(value.size for _, value in tree_flatten(model.trainable_parameters()))
            compared[name] = {"parameters": parameters} | report
            write_json(output / METRICS, {"compared": compared})
            reports[run.decoder].append(report[split])
            models.setdefault(f"predicted: {run.decoder}", model)
            draw(models, splits[split], output / FIGURE)
            score, left = shown(report[split]["miou"]), len(runs) - number
            text = f"{run.decoder}, seed {run.seed}: {split} mean IoU {score}. Networks left: {left}."
            print(text, flush=True)
    seeds = len(arguments.seeds)
    print(f"\nMean of {seeds} seeds, {split} images" if seeds > 1 else f"\n{split.title()} images")
    print_report({decoder: mean_of(found) for decoder, found in reports.items()})
    for decoder, found in reports.items() if seeds > 1 else ():
        scores = ", ".join(shown(each["miou"]) for each in found)
        print(f"mean IoU of each seed, {decoder}: {scores}")
    print(f"\nWrote {FIGURE}, {METRICS} and a folder for each network ({', '.join(runs)}) in {output}/.")
    print(f"Done in {time.perf_counter() - started:.0f} s.")
    return 0


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
    others = [run.output for name, run in runs.items() if name not in (compared or {})]
    others += [output / METRICS, output / FIGURE] if compared is None else []
    if old := [path for path in others if path.exists()]:
        raise ValueError(f"{old[0]} exists, and this program did not write it: pass another --output.")
    unfinished = [run for run in runs.values() if not (run.output / METRICS).exists()]
    if arguments.resume and not any((run.output / CHECKPOINT).exists() for run in unfinished):
        raise ValueError(f"There is nothing to resume: {output} has no checkpoint of these runs.")
    for run in runs.values():
        settings = read_json(run.output / METRICS).get("settings", settings_of(run, splits))
        if arguments.overwrite or not unfinished or settings != settings_of(run, splits):
            remove_files(run.output)
    compared = {name: {} for name in runs} | (compared or {})
    write_json(output / METRICS, {"compared": compared})
    return compared


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
    run_program(main, "examples")
