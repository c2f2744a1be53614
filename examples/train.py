"""Train an ENet or a SegNet on your images and masks, or on scenes that the program draws.

    python examples/train.py --data photos      photos/images/a.jpg with photos/masks/a.png, and so on
    python examples/train.py --data CamVid      the layout of CamVid: train/, trainannot/, val/, valannot/
    python examples/train.py --data images masks --validation test test_masks      pairs of folders
    python examples/train.py                    handwritten digits, drawn over photographs
    python examples/train.py --compare          a SegNet with unpooling and one with nearest neighbour
    python examples/train.py --data photos --model model/enet --output new    start from a model of the zoo
    python examples/train.py --data photos --resume --steps 600         continue, also after the last step
    mlx.launch -n 2 --backend ring -- python examples/train.py          divide each batch between 2 processes

examples/README.md lists other layouts of folders, the formats of masks and the tables of classes of other
tools. The pixels of a mask are labels (numbers) or colours. The classes are in photos/classes.txt, one per
line, "number name red green blue" or only the name; without a file they are those that occur in the masks.
255 is ignored, unless the file lists it or it occurs only with 0, and so are classes called "unlabelled" or
"void". The program prints what it understood, and draws the first masks on their images (data.png).
All images are held in memory. The folder --output gets the model with the best validation mean IoU of all
checkpoints (a folder of the zoo, for predict.py and export.py), its metrics (JSON), a figure, the log (CSV)
and a checkpoint.

--compare trains a SegNet for each --decoder and seed, in a folder for each, and writes metrics.json and the
figure segnet.png. The same command again continues a comparison that was interrupted, and replaces a
finished one.
"""

import argparse
import contextlib
import json
import math
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from common.command_line import extra, run_program

with extra("examples"):
    import mlx.core as mx
    import mlx_unpool_zoo as zoo
    import numpy as np
    from common.digit_scenes import SPLITS, DrawnScenes, scenes_to_evaluate
    from common.drawing import draw_rows, overlaid
    from common.files import check_output_folder, reserved, write_file
    from common.pictures import Pictures
    from common.training import adamw, train, weighted_cross_entropy
    from mlx.utils import tree_flatten
    from mlx_unpool_zoo.about import IMAGENET
    from mlx_unpool_zoo.data import read
    from mlx_unpool_zoo.metrics import SCORES
    from mlx_unpool_zoo.published import PUBLISHED
    from mlx_unpool_zoo.pytorch import cut
    from mlx_unpool_zoo.saving import WEIGHTS
    from mlx_unpool_zoo.segnet import DECODERS, NORMS

METRICS = "metrics.json"
FILES = ("checkpoint.safetensors", "log.csv", METRICS, "predictions.png", "data.png")
FIGURE = "segnet.png"  # of --compare
# Of settings_of.
SETTINGS = ("model", "decoder", "decoder_kernel", "norm", "crop", "side", "batch", "seed", "learning_rate")
# For drawn scenes, the best of 0.005, 0.01 and 0.02 on the validation scenes with seed 0.
LEARNING_RATES = {"unpool": 0.01, "nearest": 0.005, "bilinear": 0.005, "skip": 0.01}
COARSE_WEIGHT = 0.5  # of the loss of the coarse scores


def parse_arguments() -> Namespace:
    """Parse and check the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.epilog = "Ctrl-C stops after the current step; --resume continues from there."
    add = parser.add_argument
    add("--data", type=Path, nargs="+", help="folder with images/ and masks/, or both folders")
    add("--validation", type=Path, nargs="+", help="as --data (default: val/ or a fifth of --data)")
    add("--test", type=Path, nargs="+", help="as --data, to test the best model")
    add("--classes", type=Path, help="names and colours (default: classes.txt beside the masks)")
    add("--mask-ending", help="how the names of masks end, if it is not clear, such as _labelIds")
    absent = "train although no pixel has some class, and pixels with 255 are ignored"
    add("--allow-absent-classes", action="store_true", help=absent)
    add("--model", help="enet (default), segnet, or the folder of a model")
    add("--compare", action="store_true", help="train a SegNet for each --decoder and seed")
    add(
        "--decoder", choices=DECODERS, nargs="+", help="for segnet (default: unpool; also nearest to compare)"
    )
    add("--decoder-kernel", type=int, choices=(1, 3, 5, 7), help="kernel size, for segnet (default: 3)")
    add("--norm", choices=NORMS, help="for segnet, normalise over a batch (default) or each image")
    add("--side", type=int, default=256, help="scale larger images to this shorter side (default: 256)")
    add("--crop", type=int, help="side of training crops (default: median of the shorter sides)")
    add("--steps", type=int, default=300, help="training steps (default: 300)")
    add("--batch", type=int, help="batch size over all processes (default: 4, for drawn scenes 8)")
    add("--learning-rate", type=float, help="peak learning rate (default: 0.01, or see LEARNING_RATES)")
    add("--compile", action="store_true", help="compile the step (takes minutes on a CPU)")
    add("--seeds", "--seed", type=int, nargs="+", default=[0], help="seed of weights and data (default: 0)")
    add("--save-every", type=int, default=100, help="steps between checkpoints (default: 100)")
    add("--output", type=Path, help="output folder (default: demo/train, with --compare demo)")
    add("--resume", action="store_true", help="continue a run")
    add("--overwrite", action="store_true", help="replace the run in --output (without --resume)")
    add("--smoke", action="store_true", help="a few steps only, to check that everything runs")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.steps = 6 if arguments.compare else 3
    set_defaults(parser, arguments)
    if min(arguments.steps, arguments.batch, arguments.save_every) < 1:
        parser.error("--steps, --batch and --save-every must be 1 or more")
    if arguments.side < 8 or (arguments.crop is not None and arguments.crop < 8):
        parser.error("--side and --crop must be 8 or more")
    if arguments.learning_rate is not None and not 0 < arguments.learning_rate < math.inf:
        parser.error("--learning-rate must be positive and finite")
    if not arguments.data and (arguments.validation or arguments.test or arguments.classes or arguments.crop):
        parser.error("--validation, --test, --classes and --crop need --data")
    check_output_folder("--output", arguments.output)
    return arguments


def set_defaults(parser: argparse.ArgumentParser, arguments: Namespace) -> None:
    """Set the options whose defaults depend on other options."""
    compare = arguments.compare
    arguments.model = arguments.model or ("segnet" if compare else "enet")
    if arguments.model == "segnet":
        arguments.decoder = arguments.decoder or ["unpool", "nearest"][: 1 + compare]
        arguments.decoder_kernel = arguments.decoder_kernel or 3
        arguments.norm = arguments.norm or "batch"
    elif arguments.decoder or arguments.decoder_kernel or arguments.norm or compare:
        parser.error("--decoder, --decoder-kernel, --norm and --compare need --model segnet")
    arguments.decoder = list(dict.fromkeys(arguments.decoder or [None]))
    arguments.seeds = list(dict.fromkeys(arguments.seeds))
    if not compare and len(arguments.decoder) * len(arguments.seeds) > 1:
        parser.error("several decoders or seeds need --compare")
    if arguments.batch is None:
        arguments.batch = 4 if arguments.data else 8
    arguments.output = arguments.output or Path("demo" if compare else "demo/train")


def runs_of(arguments: Namespace) -> dict[str, Namespace]:
    """The arguments of the run for each decoder and seed, by its name."""
    runs = {}
    for seed in arguments.seeds:
        for decoder in arguments.decoder:
            run = runs[f"{decoder}-seed{seed}"] = Namespace(**vars(arguments))
            rates = {} if arguments.data else LEARNING_RATES
            run.learning_rate = arguments.learning_rate or rates.get(decoder, 0.01)
            run.decoder, run.seed = decoder, seed
            run.output = arguments.output / f"{decoder}-seed{seed}" if arguments.compare else arguments.output
    return runs


def read_data(arguments: Namespace) -> dict[str, Pictures]:
    """The images for training, for validation and, if there are any, for a test."""
    if not arguments.data:
        count = 5 if arguments.smoke else 100
        held = {split: scenes_to_evaluate(split, count) for split in SPLITS[1:]}
        return {"train": DrawnScenes([], held["test"].classes)} | held
    others = {split: getattr(arguments, split) for split in SPLITS[1:] if getattr(arguments, split)}
    options = {"others": others, "mask_ending": arguments.mask_ending, "divided": True}
    records = read(arguments.data, arguments.side, arguments.classes, **options)
    return {split: Pictures.of(record) for split, record in records.items()}


def model_of(arguments: Namespace, data: Pictures) -> zoo.Model:
    """A new model, or the one in a folder, with new weights where the number of classes differs."""
    mx.random.seed(arguments.seed)
    count, name = len(data.classes), arguments.model
    if name == "enet":
        model: zoo.Model = zoo.ENet(count)
        model.about.input["normalisation"] = IMAGENET
    elif name == "segnet":
        options = {name: getattr(arguments, name) for name in ("decoder", "decoder_kernel", "norm")}
        model = zoo.SegNet(count, coarse=not arguments.data, **options)
    elif not Path(name).is_dir() and name not in PUBLISHED:
        raise ValueError(f"--model must be enet, segnet, hair or the folder of a model, but got {name}.")
    else:
        model = zoo.from_pretrained(name)
        if (model._pictures, model._inputs[1]) != (3, 2):
            raise ValueError(f"--model must segment RGB images, unlike {name}.")
        options = {"num_classes": count, "ignore_mismatched_sizes": True, "dtype": "float32"}
        model = zoo.from_pretrained(name, **options)
    model.about.classes = data.classes
    model.about.input["side"] = arguments.side
    for key in ("white_level", "range"):
        model.about.input.pop(key, None)
    if data.ends:
        model.about.input["range"] = data.ends
    source = " ".join(path.name for path in arguments.data or [Path("drawn digits")])
    model.about.source = f"trained by examples/train.py on {source}"
    return model


def loss_of(model: zoo.Model, inputs: mx.array, classes: mx.array, weights: mx.array) -> mx.array:
    """The weighted mean loss over pixels, and that of coarse scores for the highest class in each window."""
    if "coarse_classifier" not in model:
        return weighted_cross_entropy(model(inputs), classes, weights)
    scores, coarse = model.scores(inputs)
    count, height, width, _ = coarse.shape
    side = 2 ** len(model.encoder)

    def highest(values: mx.array) -> mx.array:
        values = values[:, : height * side, : width * side]
        return values.reshape(count, height, side, width, side).max(axis=(2, 4))

    counted = mx.where(weights > 0, classes, 0)
    coarse_loss = weighted_cross_entropy(coarse, highest(counted), highest(weights))
    return weighted_cross_entropy(scores, classes, weights) + COARSE_WEIGHT * coarse_loss


def main() -> int:
    """Run the program and return the exit status."""
    arguments = parse_arguments()
    splits = read_data(arguments)
    splits["train"].class_weights()  # raises an error if no pixel counts
    runs = runs_of(arguments)
    if mx.distributed.init().rank() > 0:
        for run in runs.values():
            trained(model_of(run, splits["train"]), splits, run)
        return 0
    return compare(runs, splits, arguments) if arguments.compare else train_one(*runs.values(), splits)


def train_one(arguments: Namespace, splits: dict[str, Pictures]) -> int:
    """Train a model on images, test it and draw some of its predictions."""
    model, output = model_of(arguments, splits["train"]), arguments.output
    with reserved("--output", output):
        if not arguments.resume:
            files = [output / name for name in (model.model_type, *FILES)]
            if (old := [path for path in files if path.exists()]) and not arguments.overwrite:
                hint = "--resume to continue its run, " * files[1].exists() + "--overwrite to replace it, or"
                raise ValueError(f"{old[0]} exists: pass {hint} another --output.")
            remove_files(output)
        print_data(model.model_type, splits)
        if not arguments.resume:
            draw_data(splits, output / FILES[4])
        model, report = trained(model, splits, arguments)
        print_report(report)
        draw({"predicted": model}, splits["validation"], output / FILES[3])
    print(f"Wrote the best model, {output / model.model_type}/, and {', '.join(FILES)} in {output}/.")
    print(f"Label your images: python examples/predict.py {output / model.model_type} IMAGE ...")
    print(f"Train longer: the same command with --resume --steps {2 * arguments.steps}")
    return 0


def print_data(name: str, splits: dict[str, Pictures]) -> None:
    """Print the number of images and the classes."""
    data = splits["train"]
    count = f"{len(data.pairs)} images" if data.pairs else "new scenes in each step"
    others = "".join(f", {len(splits[name].pairs)} for {name}" for name in SPLITS[1:] if name in splits)
    text = f"{name}: {count}{others}, {len(data.classes)} classes"
    text += f" ({cut([entry['name'] for entry in data.classes])})."
    print(text, *(line for each in splits.values() for line in each.lines), sep="\n", flush=True)


def draw_data(splits: dict[str, Pictures], path: Path) -> None:
    """Draw the first images with their masks, for a person who checks them."""
    classes, pairs = splits["train"].classes, (splits["train"].pairs or splits["validation"].pairs)[:6]
    images, masks = zip(*pairs, strict=True)
    columns = {"image": images, "with its mask": [overlaid(*pair, classes) for pair in pairs]}
    draw_rows(columns, classes, path, hatched=any((mask >= len(classes)).any() for mask in masks))
    print(f"Look at the first images with their masks: {path}", flush=True)


def remove_files(folder: Path) -> None:
    """Remove the files of a run, except its model, which the next one replaces."""
    for name in (METRICS, *FILES):
        (folder / name).unlink(missing_ok=True)


def draw(models: dict[str, zoo.Model], data: Pictures, path: Path) -> None:
    """Draw the first images with their masks and the classes that each model predicts."""
    shown, truth = zip(*data.pairs[:4], strict=True)
    columns = {"image": shown, "mask": truth}
    columns |= {title: [*map(model.predict, shown)] for title, model in models.items()}
    draw_rows(columns, data.classes, path)


def compare(runs: dict[str, Namespace], splits: dict[str, Pictures], arguments: Namespace) -> int:
    """Train the networks one after the other. Print a table and draw a figure that compares them."""
    output, started = arguments.output, time.perf_counter()
    split = "test" if "test" in splits else "validation"
    reports: dict[str, list[dict]] = {decoder: [] for decoder in arguments.decoder}
    models: dict[str, zoo.Model] = {}
    with reserved("--output", output):
        compared = prepare(runs, splits, arguments)
        print_data(f"segnet, {', '.join(runs)}", splits)
        for number, (name, run) in enumerate(runs.items(), start=1):
            run.resume = (run.output / FILES[0]).exists()
            model, report = trained(model_of(run, splits["train"]), splits, run)
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
        raise ValueError(f"{old[0]} exists, and --compare did not write it: pass another --output.")
    unfinished = [run for run in runs.values() if not (run.output / METRICS).exists()]
    if arguments.resume and not any((run.output / FILES[0]).exists() for run in unfinished):
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


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file in one step."""
    write_file(path, json.dumps(content, indent=2).encode())


def settings_of(arguments: Namespace, splits: dict[str, Pictures]) -> dict[str, Any]:
    """What a resumed run must have in common with the run that it continues."""
    settings = {name: getattr(arguments, name) for name in SETTINGS}
    settings |= {"steps": arguments.steps} if arguments.compare else {}
    settings["classes"] = [entry["name"] for entry in splits["train"].classes]
    settings["labels"] = [entry.get("label") for entry in splits["train"].classes]
    return settings | {"data": splits["train"].summary(), "validation": splits["validation"].summary()}


def trained(
    model: zoo.Model, splits: dict[str, Pictures], arguments: Namespace
) -> tuple[zoo.Model, dict[str, Any]]:
    """The best model of a run and its metrics. Only the first process writes and tests it."""
    output, settings = arguments.output, settings_of(arguments, splits)
    report = {"validation": train_model(model, splits["train"], splits["validation"], settings, arguments)}
    if mx.distributed.init().rank() > 0:
        return model, {}
    model = zoo.from_pretrained(output / model.model_type)
    for split in SPLITS[1:]:
        if split in splits and not report.get(split):
            report[split] = splits[split].metrics_of(model)
    counted = {"train": splits["train"].counted()} if splits["train"].pairs else {}
    write_json(output / METRICS, {"settings": settings} | counted | report)
    return model, report


def train_model(
    model: zoo.Model, data: Pictures, held: Pictures, settings: dict[str, Any], arguments: Namespace
) -> dict[str, Any]:
    """Train a model. The folder ``--output`` has the one with the best validation mean IoU so far.

    Returns:
        The validation metrics of this model, empty if an earlier call has computed them.
    """
    folder, metrics = arguments.output / model.model_type, {}

    def keep_the_best(evaluates: bool, best: float) -> tuple[str, float]:
        exists = (folder / WEIGHTS).exists()
        if not evaluates:
            if not exists:
                model.save_pretrained(folder)
            kind = "an earlier" if best == -math.inf else "the best"
            return f". {folder}/ has {kind if exists else 'this'} model.", math.nan
        found = held.metrics_of(model)
        if found["miou"] is None:  # then the folder has the last model
            model.save_pretrained(folder)
            return ", validation mean IoU -", math.nan
        score = float(np.float32(found["miou"]))  # as in the log
        if is_best := score > best or not exists:
            model.save_pretrained(folder)
            metrics.update(found)
        return f", validation mean IoU {score:.3f}{', the best so far' * is_best}", score

    train(
        model,
        adamw(arguments.learning_rate, arguments.steps),
        loss_of,
        data.batches(model, arguments.batch, arguments.seed, arguments.crop),
        arguments.steps,
        arguments.output / FILES[0],
        settings=settings,
        save_every=arguments.save_every,
        evaluate_every=arguments.steps if arguments.compare else None,  # which takes as long as 20 steps
        seed=arguments.seed,
        resume=arguments.resume,
        description=f"{arguments.decoder}, seed {arguments.seed}" if arguments.compare else model.model_type,
        compiled=arguments.compile,
        log=arguments.output / FILES[1],
        at_checkpoint=keep_the_best,
    )
    return metrics


def print_report(report: dict[str, Any]) -> None:
    """Print the metrics of each split in a column."""
    print(f"{'':22}" + "".join(f"{split:>12}" for split in report))
    names = dict.fromkeys(name for found in report.values() for name in found["iou"])
    rows = {f"IoU {name}": [found["iou"].get(name) for found in report.values()] for name in names}
    rows |= {name: [found[key] for found in report.values()] for key, name in SCORES.items()}
    for name, values in rows.items():
        print(f"{name:22}" + "".join(f"{shown(v):>12}" for v in values))


def shown(score: float | None) -> str:
    """A score, or "-" if there is none."""
    return "-" if score is None or math.isnan(score) else f"{score:.3f}"


if __name__ == "__main__":
    run_program(main)
