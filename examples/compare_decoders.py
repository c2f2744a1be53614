"""Compare decoders: train SegNets with unpooling and nearest-neighbour upsampling, and draw both.

    python examples/compare_decoders.py
    python examples/compare_decoders.py --decoder unpool nearest bilinear skip --seeds 0 1 2

The networks find handwritten digits on photographs, in scenes that the program draws. The folder
--output gets a folder for each network, metrics.json and the figure segnet.png. The same command
again continues a comparison that was interrupted, and replaces a finished one.
"""

import contextlib
import dataclasses
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
    from digit_scenes import LARGEST_DIGIT, DrawnScenes, scenes_to_evaluate
    from mlx.utils import tree_flatten
    from mlx_unpool_zoo import runs
    from mlx_unpool_zoo.batches import Pictures
    from mlx_unpool_zoo.commands.outputs import reserved
    from mlx_unpool_zoo.commands.run_options import (
        add_run_options,
        check_one_process,
        check_run_options,
    )
    from mlx_unpool_zoo.metrics import SCORES
    from mlx_unpool_zoo.segnet import DECODERS

FIGURE = "segnet.png"
# Scenes that are evaluated. The scores that are compared are those of the test.
SCENES = {"validation": 25, "test": 100}
LICENCE = "https://github.com/mlx-unpool/mlx-unpool/blob/main/LICENSE"
# For the card of the network in the package: what it was trained on, and the licences of that.
SOURCE = (
    "trained by examples/compare_decoders.py on drawn scenes. The digits are those of E. Alpaydin "
    "and C. Kaynak (UCI Machine Learning Repository), from scikit-learn (BSD-3-Clause). The "
    "photographs are china.jpg by danielbuechele and flower.jpg by vultilion (both flickr.com, CC "
    "BY 2.0)"
)
NAMES = {
    "unpool": "unpooling",
    "nearest": "nearest neighbour",
    "bilinear": "bilinear upsampling",
    "skip": "skip connections",
}
# The best of 0.005, 0.01 and 0.02 on the validation scenes, after 300 steps with --crop 32, seed 0.
LEARNING_RATES = {"unpool": 0.01, "nearest": 0.005, "bilinear": 0.005, "skip": 0.01}


def parse_arguments() -> Namespace:
    """Parse and check the command line."""
    parser = parser_of(None, __doc__)
    add = parser.add_argument
    add("--decoder", choices=DECODERS, nargs="+", default=["unpool", "nearest"])
    add(
        "--seeds",
        "--seed",
        type=int,
        nargs="+",
        default=[0],
        help="seed of weights and data (default: 0)",
    )
    digits = 'also write the first network in float16: how from_pretrained("digits") was made'
    add("--digits", type=Path, metavar="FOLDER", help=digits)
    add("--crop", type=int, default=24, help="side of the training scenes, in pixels (default: 24)")
    options: Any = {"batch": 8, "learning_rate": None, "save_every": 300}  # evaluations take time
    add_run_options(parser, steps=250, output=Path("runs/compare"), **options)
    arguments = parser.parse_args()
    if arguments.crop < LARGEST_DIGIT:
        parser.error(f"--crop must be {LARGEST_DIGIT} or more, the side of the largest digits")
    check_run_options(parser, arguments, smoke=6)
    return arguments


@dataclasses.dataclass
class Network:
    """A network to train: its folder, and what a resumed run must have in common."""

    folder: Path
    settings: dict[str, Any]

    @property
    def decoder(self) -> str:
        """The kind of the decoder."""
        return self.settings["decoder"]

    @property
    def title(self) -> str:
        """The name of the network in the output."""
        return f"{self.decoder}, seed {self.settings['seed']}"

    def is_finished(self) -> bool:
        """Whether the network has been trained and tested."""
        return (self.folder / runs.METRICS).exists()

    def has_checkpoint(self) -> bool:
        """Whether the training has started."""
        return (self.folder / runs.CHECKPOINT).exists()


def networks_of(arguments: Namespace, splits: dict[str, Pictures]) -> dict[str, Network]:
    """The networks to compare, one for each decoder and seed, by the names of their folders."""
    networks = {}
    for seed, decoder in itertools.product(arguments.seeds, arguments.decoder):
        options = {
            "model": "segnet",
            "decoder": decoder,
            "decoder_kernel": 3,
            "norm": "batch",
            "crop": arguments.crop,
            "batch": arguments.batch,
            "seed": seed,
            "learning_rate": arguments.learning_rate or LEARNING_RATES[decoder],
        }
        name = f"{decoder}-seed{seed}"
        networks[name] = Network(arguments.output / name, runs.settings_of(options, splits))
    return networks


def trained(
    network: Network, splits: dict[str, Pictures], arguments: Namespace
) -> tuple[zoo.Model, dict[str, Any]]:
    """The best version of a network in its run, and its metrics."""
    classes, settings = splits["train"].classes, network.settings
    mx.random.seed(settings["seed"])
    options = {name: settings[name] for name in ("decoder", "decoder_kernel", "norm")}
    model = zoo.SegNet(len(classes), **options)
    model.about.classes = classes
    model.about.source = SOURCE
    return runs.trained(
        model,
        splits,
        network.folder,
        settings,
        steps=arguments.steps,
        save_every=arguments.save_every,
        resume=network.has_checkpoint(),
        name=network.title,
    )


def main() -> int:
    """Run the program and return the exit status."""
    arguments = parse_arguments()
    check_one_process()
    splits: dict[str, Pictures] = {}
    for split, count in SCENES.items():
        splits[split] = scenes_to_evaluate(split, 5 if arguments.smoke else count)
    splits["train"] = DrawnScenes([], splits["test"].classes)
    networks = networks_of(arguments, splits)
    started = time.perf_counter()
    with reserved("--output", arguments.output):
        compared = prepare(networks, arguments)
        print_task(networks, splits)
        reports = compare(networks, splits, compared, arguments)
    means = {decoder: mean_of(found) for decoder, found in reports.items()}
    print_scores(reports, means)
    if arguments.digits:
        write_digits(next(iter(networks.values())), arguments.digits)
    folders = f"a folder for each network ({', '.join(networks)}) in {arguments.output}/"
    print(f"\nWrote {FIGURE}, {runs.METRICS} and {folders}.")
    print(f"Done in {time.perf_counter() - started:.0f} s.")
    if len(means) > 1:
        print(f"\n{conclusion(means)} See {arguments.output / FIGURE}.")
    return 0


def compare(
    networks: dict[str, Network],
    splits: dict[str, Pictures],
    compared: dict[str, dict[str, Any]],
    arguments: Namespace,
) -> dict[str, list[dict[str, Any]]]:
    """Train the networks, and draw them. Return the test metrics of each decoder.

    ``compared``: the content of metrics.json, which is written after each network.
    """
    reports: dict[str, list[dict[str, Any]]] = {}
    drawn: dict[str, zoo.Model] = {}
    for number, (name, network) in enumerate(networks.items(), start=1):
        model, report = trained(network, splits, arguments)
        parameters = sum(value.size for _, value in tree_flatten(model.trainable_parameters()))
        compared[name] = {"parameters": parameters} | report
        runs.write_json(arguments.output / runs.METRICS, {"compared": compared})
        reports.setdefault(network.decoder, []).append(report["test"])
        drawn.setdefault(f"predicted: {network.decoder}", model)
        score, left = runs.shown(report["test"]["miou"]), len(networks) - number
        print(f"{network.title}: test mean IoU {score}. Networks left: {left}.", flush=True)
    runs.draw_predictions(drawn, splits["test"], arguments.output / FIGURE)
    return reports


def print_scores(
    reports: dict[str, list[dict[str, Any]]], means: dict[str, dict[str, Any]]
) -> None:
    """Print the mean test metrics of each decoder, and the mean IoU of each seed."""
    seeds = len(next(iter(reports.values())))
    if seeds == 1:
        print("\nTest images")
        runs.print_report(means)
        return
    print(f"\nMean of {seeds} seeds, test images")
    runs.print_report(means)
    for decoder, found in reports.items():
        scores = ", ".join(runs.shown(each["miou"]) for each in found)
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


def write_digits(network: Network, folder: Path) -> None:
    """Write a trained network in float16, as ``from_pretrained("digits")`` in the package."""
    model = zoo.from_pretrained(network.folder / zoo.SegNet.model_type, dtype="float16")
    model.about.licence, model.about.licence_link = "MIT", LICENCE
    model.save_pretrained(folder)


def print_task(networks: dict[str, Network], splits: dict[str, Pictures]) -> None:
    """Print what is trained, and on what."""
    classes = [entry["name"] for entry in splits["train"].classes]
    others = ", ".join(
        f"{len(splits[name].pairs)} scenes for {name}" for name in ("validation", "test")
    )
    print(f"Training {len(networks)} SegNets to find digits on photographs: {', '.join(networks)}.")
    print(
        f"New scenes in each step, {others}, {len(classes)} classes ({', '.join(classes)}).",
        flush=True,
    )


def prepare(networks: dict[str, Network], arguments: Namespace) -> dict[str, dict[str, Any]]:
    """Remove the results that a comparison replaces, and return those in its metrics.json.

    It lists every network whose training has started, so that no folder of another program is
    replaced. If all networks are finished, they are replaced; otherwise the finished ones with the
    same settings are kept.
    """
    path = arguments.output / runs.METRICS
    compared = read_json(path).get("compared")
    refuse_other_files(networks, compared, arguments.output)
    unfinished = [network for network in networks.values() if not network.is_finished()]
    if arguments.resume:
        check_resumable(unfinished, arguments.output)
    replaces_all = arguments.overwrite or not unfinished
    for network in networks.values():
        if replaces_all or has_other_settings(network):
            runs.remove_files(network.folder)
    compared = {name: {} for name in networks} | (compared or {})
    runs.write_json(path, {"compared": compared})
    return compared


def check_resumable(unfinished: list[Network], output: Path) -> None:
    """Raise ValueError if the training of none of the networks has started."""
    if not any(network.has_checkpoint() for network in unfinished):
        raise ValueError(
            f"There is nothing to resume: {output} has no checkpoint of these networks."
        )


def has_other_settings(network: Network) -> bool:
    """Whether a network is finished and was trained with other settings."""
    if not network.is_finished():
        return False
    return read_json(network.folder / runs.METRICS).get("settings") != network.settings


def refuse_other_files(networks: dict[str, Network], compared: dict | None, output: Path) -> None:
    """Raise ValueError for a file or folder that a comparison would replace, but did not write."""
    paths = [network.folder for name, network in networks.items() if name not in (compared or {})]
    if compared is None:
        paths += [output / runs.METRICS, output / FIGURE]
    if old := [path for path in paths if path.exists()]:
        raise ValueError(
            f"{old[0]} exists, and this program did not write it: pass another --output."
        )


def mean_of(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """The means of some metrics."""
    iou = {
        name: [report["iou"].get(name, math.nan) for report in reports]
        for name in reports[0]["iou"]
    }
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
