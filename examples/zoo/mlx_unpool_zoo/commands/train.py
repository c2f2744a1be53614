"""Train a SegNet or an ENet on your images and masks.

    python -m mlx_unpool_zoo train --data photos    photos/images/a.jpg with photos/masks/a.png, and so on
    python -m mlx_unpool_zoo train --data IMAGES MASKS --validation IMAGES MASKS        folders of any names
    python -m mlx_unpool_zoo train --data photos --write-classes    write photos/classes.txt, and stop
    python -m mlx_unpool_zoo train --data photos --model model/segnet --output new      start from a model
    python -m mlx_unpool_zoo train --data photos --resume --steps 600    continue, also after the last step
    mlx.launch -n 2 --backend ring -- python -m mlx_unpool_zoo train --data photos      in two processes

photos contains images/ and masks/, or train/, val/ and test/ with these in each, and photos/classes.txt. This
file has a line "VALUE NAME" for every value of the masks: a number (0 background) or a colour (#804080 road).
Pixels of the name "ignored" do not count. --write-classes writes the file, with a ? for each name,
which you replace. A file that is not used, or a value that is not listed, is an error;
docs/own_images.md describes how to bring other data into this form. The program prints what it read,
and draws the first masks on their images (data.png). All images are held in memory. The folder --output gets
the model with the best validation mean IoU of all checkpoints (a folder of the zoo, for predict), its metrics
(JSON), a figure, the log (CSV) and a checkpoint.
"""

import argparse
import json
import math
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

import mlx_unpool_zoo as zoo
from mlx_unpool.porting.messages import cut

from ..about import IMAGENET, naming
from ..batches import Pictures, check_crop
from ..checkpoints import read_checkpoint
from ..data import class_file_of, proposed_classes, read
from ..drawing import draw_rows, overlaid
from ..files import write_file
from ..metrics import SCORES
from ..published import ENCODERS, INCLUDED, PUBLISHED, cache_of, downloaded, file_of
from ..saving import WEIGHTS
from ..segnet import DECODERS, NORMS
from ..training import adamw, cost_of, duration, train, weighted_cross_entropy
from .command_line import parser_of
from .outputs import check_output_folder, check_range, reserved

CHECKPOINT, LOG, METRICS = "checkpoint.safetensors", "log.csv", "metrics.json"
PREDICTIONS, DATA = "predictions.png", "data.png"
FILES = (CHECKPOINT, LOG, METRICS, PREDICTIONS, DATA)  # of a run, besides the folder of the model
SPLITS = ("train", "validation", "test")
MODEL_SETTINGS = ("model", "encoder", "decoder", "decoder_kernel", "norm", "crop", "side")
SETTINGS = (*MODEL_SETTINGS, "batch", "seed", "learning_rate", "class_weights", "range")
COARSE_WEIGHT = 0.5  # of the loss of the coarse scores


def add_training_options(
    parser: argparse.ArgumentParser, steps: int, batch: int, learning_rate: float | None, output: Path
) -> None:
    """Add the options of every program that trains, with some of their defaults."""
    parser.epilog = "Ctrl-C stops after the current step; --resume continues from there."
    add = parser.add_argument
    add("--steps", type=int, default=steps, help=f"training steps (default: {steps})")
    add("--batch", type=int, default=batch, help=f"batch size over all processes (default: {batch})")
    rate = learning_rate or "one for each decoder"
    add("--learning-rate", type=float, default=learning_rate, help=f"peak learning rate (default: {rate})")
    add("--save-every", type=int, default=100, help="steps between checkpoints (default: 100)")
    add("--output", type=Path, default=output, help=f"output folder (default: {output})")
    add("--resume", action="store_true", help="continue a run, or an error if there is none")
    add("--overwrite", action="store_true", help="replace earlier results in --output (without --resume)")
    add("--smoke", action="store_true", help="a few steps only, to check that everything runs")


def check_training_options(parser: argparse.ArgumentParser, arguments: Namespace, smoke: int) -> None:
    """Check the options of :func:`add_training_options`; --smoke means this many steps."""
    if arguments.smoke:
        arguments.steps = smoke
    if min(arguments.steps, arguments.batch, arguments.save_every) < 1:
        parser.error("--steps, --batch and --save-every must be 1 or more")
    if arguments.learning_rate is not None and not 0 < arguments.learning_rate < math.inf:
        parser.error("--learning-rate must be positive and finite")
    check_output_folder("--output", arguments.output)


def parse_arguments(words: Sequence[str] | None) -> Namespace:
    """Parse and check the command line."""
    parser = parser_of("python -m mlx_unpool_zoo train", __doc__)
    add = parser.add_argument
    add("--data", type=Path, nargs="+", required=True, help="folder with images/ and masks/, or two folders")
    add("--validation", type=Path, nargs="+", help="as --data (default: val/ or a fifth of --data)")
    add("--test", type=Path, nargs="+", help="as --data, to test the best model")
    add("--classes", type=Path, help="class file (default: classes.txt in --data, or in its folder of masks)")
    add(
        "--write-classes",
        action="store_true",
        help="write a class file with the values of the masks, and stop",
    )
    ending = "what names of masks have after those of their images: _mask, or, with =, -mask"
    add("--mask-ending", default="", help=ending)
    black = "values that become black and white, in images of more than 8 bits (default: found)"
    add("--range", type=float, nargs=2, metavar=("LOW", "HIGH"), help=black)
    model = "segnet (default), enet, hair (the published network), or the folder of a model"
    add("--model", default="segnet", help=model)
    add("--encoder", choices=ENCODERS, help="for segnet: start from weights of ImageNet (528 MB)")
    add("--decoder", choices=DECODERS, help="for segnet (default: unpool)")
    add("--decoder-kernel", type=int, choices=(1, 3, 5, 7), help="kernel size, for segnet (default: 3)")
    add("--norm", choices=NORMS, help="for segnet, normalise over a batch (default) or each image")
    add("--side", type=int, default=256, help="scale larger images to this shorter side (default: 256)")
    add("--crop", type=int, help="side of training crops (default: median of the shorter sides)")
    weigh = "weigh all classes the same (default: 1 / ln(1.02 + share of the pixels))"
    add("--class-weights", choices=("none",), help=weigh)
    add("--seed", type=int, default=0, help="seed of weights and data (default: 0)")
    add_training_options(parser, steps=300, batch=4, learning_rate=0.01, output=Path("runs/train"))
    arguments = parser.parse_args(words)
    check_segnet_options(parser, arguments)
    if arguments.side < 8 or (arguments.crop is not None and arguments.crop < 8):
        parser.error("--side and --crop must be 8 or more")
    check_range(arguments.range)
    check_training_options(parser, arguments, smoke=3)
    return arguments


def check_segnet_options(parser: argparse.ArgumentParser, arguments: Namespace) -> None:
    """Check the options for a SegNet, and set their defaults."""
    defaults = {"decoder": "unpool", "decoder_kernel": 3, "norm": "batch"}
    given = [name for name in defaults if getattr(arguments, name) is not None]
    if arguments.encoder:
        if given or arguments.model != "segnet":
            parser.error("--encoder needs --model segnet, without --decoder, --decoder-kernel and --norm")
    elif arguments.model == "segnet":
        vars(arguments).update({name: value for name, value in defaults.items() if name not in given})
    elif given:
        parser.error("--decoder, --decoder-kernel and --norm need --model segnet")


def read_data(arguments: Namespace) -> dict[str, Pictures]:
    """The images for training, for validation and, if there are any, for a test."""
    others = other_folders(arguments)
    records = read(
        arguments.data,
        arguments.side,
        arguments.classes,
        others=others,
        mask_ending=arguments.mask_ending,
        ends=arguments.range,
        divided=True,
        known=names_in(arguments.model),
    )
    found = {split: Pictures.of(record) for split, record in records.items()}
    found["train"].weighted = arguments.class_weights != "none"
    check_sizes(arguments, found)
    return found


def names_in(model: str) -> set[str]:
    """The names of the classes of a model in a folder; none for a new network."""
    if not Path(model).is_dir():
        return set()
    return {entry["name"] for entry in zoo.from_pretrained(model).about.classes or ()}


def check_sizes(arguments: Namespace, splits: dict[str, Pictures]) -> None:
    """Raise ValueError if an image is too small, or --crop is larger than every image."""
    for data in splits.values():
        for facts, (_, truth) in zip(data.record.facts if data.record else (), data.pairs):
            if min(truth.shape) < 8:
                raise ValueError(
                    f"{facts.path} must have at least 8 pixels on each side after --side "
                    f"{arguments.side}, but has {truth.shape[1]} x {truth.shape[0]}."
                )
    longest = max(max(truth.shape) for _, truth in splits["train"].pairs)
    if arguments.crop and arguments.crop > longest:
        raise ValueError(
            f"--crop must be at most {longest}, the longer side of the largest image after --side "
            f"{arguments.side}, but got {arguments.crop}."
        )


def other_folders(arguments: Namespace) -> dict[str, list[Path]]:
    """The folders that the options give for validation and for a test."""
    return {split: getattr(arguments, split) for split in SPLITS[1:] if getattr(arguments, split)}


def write_classes(arguments: Namespace) -> None:
    """Write a class file with the values of the masks, in the first process."""
    if mx.distributed.init().rank() > 0:
        return
    path = class_file_of(arguments.data, arguments.classes)
    check_absent(path)
    ending = arguments.mask_ending
    lines = proposed_classes(
        arguments.data, arguments.classes, others=other_folders(arguments), mask_ending=ending
    )
    check_absent(path)  # it may have been written by hand in the meantime
    write_file(path, f"{lines}\n".encode())
    then = "Write the names into it, and run the command without --write-classes."
    print(f"{lines}\n\nWrote {path}. {then}")


def check_absent(path: Path) -> None:
    """Raise ValueError if there is a class file."""
    if path.exists():
        raise ValueError(
            f"{path} exists: write the names into it and run the command without --write-classes, "
            "or remove it."
        )


def model_of(arguments: Namespace, data: Pictures) -> zoo.Model:
    """A new model, or the one in a folder, with new weights where the number of classes differs."""
    mx.random.seed(arguments.seed)
    if arguments.encoder:
        model: zoo.Model = pretrained_segnet(arguments, data)
    elif arguments.model in ("enet", "segnet"):
        model = new_model(arguments, len(data.classes))
    else:
        model = started_from(arguments.model, len(data.classes))
    about: Any = model.about
    about.classes = data.classes
    about.input["side"] = arguments.side
    for key in ("white_level", "range"):
        about.input.pop(key, None)
    if data.record and data.record.ends:
        about.input["range"] = data.record.ends
    source = "trained by python -m mlx_unpool_zoo train on " + " ".join(path.name for path in arguments.data)
    if about.source != "unknown":
        source += f", from {about.source}"
    about.source = source
    return model


def new_model(arguments: Namespace, count: int) -> zoo.Model:
    """A network for this many classes, with random weights."""
    if arguments.model == "enet":
        model = zoo.ENet(count)
        model.about.input["normalisation"] = IMAGENET
        return model
    options = {name: getattr(arguments, name) for name in ("decoder", "decoder_kernel", "norm")}
    return zoo.SegNet(count, **options)


def started_from(name: str, count: int) -> zoo.Model:
    """A trained network, with new weights where the number of classes differs."""
    if not Path(name).is_dir() and name not in {**INCLUDED, **PUBLISHED}:
        raise ValueError(f"--model must be segnet, enet, hair or the folder of a model, but got {name}.")
    model = zoo.from_pretrained(name)
    if (model.picture_channels, model.dims) != (3, 2):
        raise ValueError(f"--model must segment RGB images, unlike {name}.")
    options: Any = {"num_classes": count, "ignore_mismatched_sizes": True, "dtype": "float32"}
    return zoo.from_pretrained(name, **options)


def pretrained_segnet(arguments: Namespace, data: Pictures) -> zoo.Model:
    """A SegNet whose encoder has published weights, which are downloaded at the first call."""
    count, folder = len(data.classes), arguments.output / zoo.SegNet.model_type
    if mx.distributed.init().rank() > 0:
        return zoo.SegNet.vgg16(count)  # gets the weights of the first process
    if arguments.resume and folder.exists():
        return zoo.from_pretrained(folder)
    name, entry, cache = arguments.encoder, ENCODERS[arguments.encoder], cache_of()
    if not file_of(name, entry, cache).exists():
        model, crop = zoo.SegNet.vgg16(count), arguments.crop
        seconds, octets = cost_of(model, data.crop_of(model, crop), arguments.batch)
        time = f"{seconds:.2g} s, {duration(seconds * arguments.steps)} for all {arguments.steps}"
        print(f"A step will take about {time}, and {octets / 2**30:.1f} GiB of memory.", flush=True)
    file = downloaded(name, entry, cache)
    mx.random.seed(arguments.seed)
    with naming(file):
        model = zoo.SegNet.from_pytorch(read_checkpoint(file), num_classes=count)
    digits = f"the first {len(entry.sha256)} digits of its SHA-256 were checked"
    print(f"{name}: from {entry.source} ({entry.licence}, {entry.licence_link}); {digits}.", flush=True)
    about = model.about
    about.source, about.licence, about.licence_link = entry.source, entry.licence, entry.licence_link
    about.input["normalisation"] = IMAGENET
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


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    arguments = parse_arguments(words)
    if arguments.write_classes:
        write_classes(arguments)
        return 0
    if arguments.crop:  # before the images are read
        kind = {"enet": zoo.ENet, "segnet": zoo.SegNet}.get(arguments.model)
        check_crop(kind(2) if kind else zoo.from_pretrained(arguments.model), arguments.crop)
    splits = read_data(arguments)
    model = model_of(arguments, splits["train"])
    if mx.distributed.init().rank() > 0:
        trained(model, splits, arguments)
        return 0
    output = arguments.output
    folder = output / model.model_type
    with reserved("--output", output):
        if not arguments.resume:
            replace_files(folder, arguments.overwrite)
        print_data(model.model_type, splits)
        if not arguments.resume:
            draw_data(splits, output / DATA)
        model, report = trained(model, splits, arguments)
        print_report(report)
        draw({"predicted": model}, splits["validation"], output / PREDICTIONS)
    print(f"Wrote the best model, {folder}/, and {', '.join(FILES)} in {output}/.")
    print(f"Label your images: python -m mlx_unpool_zoo predict {folder} IMAGE ...")
    print(f"Train longer: the same command with --resume --steps {2 * arguments.steps}")
    return 0


def replace_files(model: Path, overwrite: bool) -> None:
    """Remove the files of an earlier run beside its model; an error if there are any, without --overwrite."""
    files = [model, *(model.with_name(name) for name in FILES)]
    if (old := [path for path in files if path.exists()]) and not overwrite:
        ways = ["--overwrite to replace it", "or another --output"]
        if files[1].exists():
            ways.insert(0, "--resume to continue its run")
        raise ValueError(f"{old[0]} exists: pass {', '.join(ways)}.")
    remove_files(model.parent)


def remove_files(folder: Path) -> None:
    """Remove the files of a run, except its model, which the next one replaces."""
    for name in (METRICS, *FILES):  # a run with metrics is finished
        (folder / name).unlink(missing_ok=True)


def print_data(name: str, splits: dict[str, Pictures]) -> None:
    """Print the number of images and the classes."""
    data = splits["train"]
    others = "".join(f", {len(splits[name].pairs)} for {name}" for name in SPLITS[1:] if name in splits)
    names = cut([entry["name"] for entry in data.classes])
    print(f"{name}: {len(data.pairs)} images{others}, {len(data.classes)} classes ({names}).")
    for each in splits.values():
        print(*each.record.lines() if each.record else (), sep="\n", flush=True)


def draw_data(splits: dict[str, Pictures], path: Path) -> None:
    """Draw the first images with their masks, for a person who checks them."""
    classes, pairs = splits["train"].classes, splits["train"].pairs[:6]
    images, masks = zip(*pairs, strict=True)
    columns = {"image": images, "with its mask": [overlaid(*pair, classes) for pair in pairs]}
    draw_rows(columns, classes, path, hatched=any((mask >= len(classes)).any() for mask in masks))
    print(f"Look at the first images with their masks: {path}", flush=True)


def draw(models: dict[str, zoo.Model], data: Pictures, path: Path) -> None:
    """Draw the first images with their masks and the classes that each model predicts."""
    shown, truth = zip(*data.pairs[:4], strict=True)
    columns: dict[str, Sequence[np.ndarray]] = {"image": shown, "mask": truth}
    columns |= {title: [*map(model.predict, shown)] for title, model in models.items()}
    draw_rows(columns, data.classes, path)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file in one step."""
    write_file(path, json.dumps(content, indent=2).encode())


def settings_of(arguments: Namespace, splits: dict[str, Pictures]) -> dict[str, Any]:
    """What a resumed run must have in common with the run that it continues."""
    classes = splits["train"].classes
    return {name: getattr(arguments, name) for name in SETTINGS} | {
        "classes": [entry["name"] for entry in classes],
        "labels": [entry.get("label") for entry in classes],
        "data": splits["train"].summary(),
        "validation": splits["validation"].summary(),
    }


def trained(
    model: zoo.Model, splits: dict[str, Pictures], arguments: Namespace, **options: Any
) -> tuple[zoo.Model, dict[str, Any]]:
    """The best model of a run and its metrics. Only the first process writes and tests it.

    ``options`` are those of :func:`train`.
    """
    output, settings = arguments.output, settings_of(arguments, splits)
    best = Best(model, splits["validation"], output / model.model_type)
    train(
        model,
        adamw(arguments.learning_rate, arguments.steps),
        loss_of,
        splits["train"].batches(model, arguments.batch, arguments.seed, arguments.crop),
        arguments.steps,
        output / CHECKPOINT,
        log=output / LOG,
        settings=settings,
        save_every=arguments.save_every,
        seed=arguments.seed,
        resume=arguments.resume,
        at_checkpoint=best.at_checkpoint,
        **{"description": model.model_type, **options},
    )
    if mx.distributed.init().rank() > 0:
        return model, {}
    model, report = zoo.from_pretrained(best.folder), {"validation": best.metrics}
    for split in SPLITS[1:]:
        if split in splits and not report.get(split):
            report[split] = splits[split].metrics_of(model)
    counted = {"train": splits["train"].counted()} if splits["train"].pairs else {}
    read = {split: each.record.report() for split, each in splits.items() if each.record}
    write_json(output / METRICS, {"settings": settings, "read": read} | counted | report)
    return model, report


class Best:
    """Keeps the model with the highest validation mean IoU of a run in a folder.

    ``metrics`` are those of this model on the validation images, empty if an earlier call has computed them.
    """

    def __init__(self, model: zoo.Model, data: Pictures, folder: Path) -> None:
        self.model, self.data, self.folder = model, data, folder
        self.metrics: dict[str, Any] = {}

    def at_checkpoint(self, evaluates: bool, best: float) -> tuple[str, float]:
        """Save the model if it is better; see :func:`train`."""
        exists = (self.folder / WEIGHTS).exists()
        if not evaluates:
            has_best = exists and best > -math.inf
            if not has_best:
                self.model.save_pretrained(self.folder)
            return f". {self.folder}/ has {'the best' if has_best else 'this'} model.", math.nan
        found = self.data.metrics_of(self.model)
        if found["miou"] is None:  # then the folder has the last model
            self.model.save_pretrained(self.folder)
            return ", validation mean IoU -", math.nan
        score = float(np.float32(found["miou"]))  # as in the log
        text = f", validation mean IoU {score:.3f}"
        if score > best or not exists:
            self.model.save_pretrained(self.folder)
            self.metrics = found
            text += ", the best so far"
        return text, score


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
