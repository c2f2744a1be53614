"""Train a SegNet or an ENet on your images and masks.

    python -m mlx_unpool_zoo train --data photos  photos/images/a.jpg, photos/masks/a.png and so on
    python -m mlx_unpool_zoo train --data IMAGES MASKS --validation IMAGES MASKS  any folder names
    python -m mlx_unpool_zoo train --data photos --write-classes  write photos/classes.txt, and stop
    python -m mlx_unpool_zoo train --data photos --model model/segnet --output new  from a model
    python -m mlx_unpool_zoo train --data photos --resume --steps 600  continue, also a finished run

photos contains images/ and masks/, or train/, val/ and test/ with these in each, and
photos/classes.txt. This file has a line "VALUE NAME" for every value of the masks: a number (0
background) or a colour (#804080 road). Pixels of the name "ignored" do not count. --write-classes
writes the file, with a ? for each name, which you replace. A file that is not used, or a value that
is not listed, is an error; docs/own_images.md describes how to bring other data into this form. The
program prints what it read, and draws the first masks on their images (data.png). All images are
held in memory. The folder --output gets the model with the best validation mean IoU of all
checkpoints (a folder of the zoo, for predict), its metrics (JSON), a figure, the log (CSV) and a
checkpoint.
"""

import argparse
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

import mlx_unpool_zoo as zoo
from mlx_unpool.porting.messages import cut

from ..about import IMAGENET
from ..batches import SPLITS, Pictures, check_crop
from ..data import class_file_of, proposed_classes, read
from ..drawing import draw_rows, overlaid
from ..files import write_file
from ..published import INCLUDED, PUBLISHED
from ..runs import CHECKPOINT, RUN_FILES, draw_predictions, print_report, settings_of, trained
from ..saving import WEIGHTS
from ..segnet import DECODERS, NORMS
from ..training import read_checkpoint
from .command_line import parser_of
from .outputs import check_range, reserved
from .run_options import add_run_options, check_one_process, check_run_options

PREDICTIONS, DATA = "predictions.png", "data.png"
FILES = (*RUN_FILES, PREDICTIONS, DATA)  # of a run, besides the folder of the model
# The options that decide which network is trained, with the defaults of a new run.
NETWORK = {"model": "segnet", "decoder": "unpool", "decoder_kernel": 3, "norm": "batch"}
MODEL_HELP = (
    "segnet (default), enet, the name of a trained network (digits, hair), or the folder of a "
    "model; with --resume, the model of the run"
)
# What a resumed run must have in common with the run that it continues.
SETTINGS = (*NETWORK, "crop", "side", "batch", "seed", "learning_rate", "class_weights", "range")


def parse_arguments(words: Sequence[str] | None) -> Namespace:
    """Parse and check the command line."""
    parser = parser_of("python -m mlx_unpool_zoo train", __doc__)
    add = parser.add_argument
    add(
        "--data",
        type=Path,
        nargs="+",
        required=True,
        help="folder with images/ and masks/, or two folders",
    )
    add("--validation", type=Path, nargs="+", help="as --data (default: val/ or a fifth of --data)")
    add("--test", type=Path, nargs="+", help="as --data, to test the best model")
    add(
        "--classes",
        type=Path,
        help="class file (default: classes.txt in --data, or in its folder of masks)",
    )
    add(
        "--write-classes",
        action="store_true",
        help="write a class file with the values of the masks, and stop",
    )
    ending = "what names of masks have after those of their images: _mask, or, with =, -mask"
    add("--mask-ending", default="", help=ending)
    black = "values that become black and white, in images of more than 8 bits (default: found)"
    add("--range", type=float, nargs=2, metavar=("LOW", "HIGH"), help=black)
    add("--model", help=MODEL_HELP)
    add("--decoder", choices=DECODERS, help="for segnet (default: unpool)")
    kernel = "kernel size, for segnet (default: 3)"
    add("--decoder-kernel", type=int, choices=(1, 3, 5, 7), help=kernel)
    add("--norm", choices=NORMS, help="for segnet, normalise over a batch (default) or each image")
    add(
        "--side",
        type=int,
        default=256,
        help="scale larger images to this shorter side (default: 256)",
    )
    add("--crop", type=int, help="side of training crops (default: median of the shorter sides)")
    weigh = "weigh all classes the same (default: 1 / ln(1.02 + share of the pixels))"
    add("--class-weights", choices=("none",), help=weigh)
    add("--seed", type=int, default=0, help="seed of weights and data (default: 0)")
    add_run_options(parser, steps=300, batch=4, learning_rate=0.01, output=Path("runs/train"))
    arguments = parser.parse_args(words)
    if arguments.side < 8 or (arguments.crop is not None and arguments.crop < 8):
        parser.error("--side and --crop must be 8 or more")
    check_range(arguments.range)
    check_run_options(parser, arguments, smoke=3)
    choose_network(parser, arguments)
    return arguments


def choose_network(parser: argparse.ArgumentParser, arguments: Namespace) -> None:
    """Set the options of the network that are not given: those of the run, or the defaults."""
    if arguments.resume:
        _, chosen = read_checkpoint(arguments.output / CHECKPOINT)
    elif arguments.model in (None, "segnet"):
        chosen = NETWORK
    else:
        chosen = {}
        if arguments.decoder or arguments.decoder_kernel or arguments.norm:
            parser.error("--decoder, --decoder-kernel and --norm need --model segnet")
    for name in NETWORK:
        if getattr(arguments, name) is None:
            setattr(arguments, name, chosen.get(name))


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
        known=names_in_model(arguments),
    )
    found = {split: Pictures.of(record) for split, record in records.items()}
    found["train"].weighted = arguments.class_weights != "none"
    check_sizes(arguments, found)
    return found


def names_in_model(arguments: Namespace) -> set[str]:
    """The names of the classes of the trained model that is the start; none for a new network."""
    if arguments.resume:
        start = folder_of_run(arguments.output)
    elif arguments.model in ("enet", "segnet"):
        return set()
    else:
        start = arguments.model
    return {entry["name"] for entry in zoo.from_pretrained(start).about.classes}


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
    """The model to train, with the classes of the images."""
    if arguments.resume:
        return zoo.from_pretrained(folder_of_run(arguments.output))
    mx.random.seed(arguments.seed)
    model = new_model(arguments, len(data.classes))
    about: Any = model.about
    about.classes = data.classes
    about.input["side"] = arguments.side
    about.input.pop("range", None)
    if data.record and data.record.ends:
        about.input["range"] = data.record.ends
    folders = " ".join(path.name for path in arguments.data)
    source = f"trained by python -m mlx_unpool_zoo train on {folders}"
    if about.source != "unknown":
        source += f", from {about.source}"
    about.source = source
    return model


def folder_of_run(output: Path) -> Path:
    """The folder of the model of a run that is resumed."""
    found = models_in(output)
    if len(found) != 1:
        names = cut([str(path) for path in found]) or "none"
        raise ValueError(f"--resume needs one folder with a model in {output}, but found {names}.")
    return found[0]


def models_in(output: Path) -> list[Path]:
    """The folders of models that runs wrote into a folder."""
    return [output / name for name in zoo.MODELS if (output / name / WEIGHTS).exists()]


def new_model(arguments: Namespace, count: int) -> zoo.Model:
    """A network for this many classes: with random weights, or a trained one."""
    if arguments.model == "enet":
        model = zoo.ENet(count)
        model.about.input["normalisation"] = IMAGENET
        return model
    if arguments.model == "segnet":
        options = {name: getattr(arguments, name) for name in NETWORK if name != "model"}
        return zoo.SegNet(count, **options)
    options = {"ignore_mismatched_sizes": True, "dtype": "float32"}
    return zoo.from_pretrained(arguments.model, num_classes=count, **options)


def kind_of(arguments: Namespace) -> type[zoo.Model]:
    """The class of the network. Raises ValueError if it cannot be trained on images."""
    if arguments.resume:
        return type(zoo.from_pretrained(folder_of_run(arguments.output)))
    name = arguments.model
    if name in ("enet", "segnet"):
        return zoo.MODELS[name]
    if not Path(name).is_dir() and name not in {**INCLUDED, **PUBLISHED}:
        names = ", ".join(["segnet", "enet", *INCLUDED, "hair"])
        raise ValueError(f"--model must be {names} or the folder of a model, but got {name}.")
    model = zoo.from_pretrained(name)
    if (model.picture_channels, model.dims) != (3, 2):
        raise ValueError(f"--model must segment RGB images, unlike {name}.")
    return type(model)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    arguments = parse_arguments(words)
    if arguments.write_classes:
        write_classes(arguments)
        return 0
    check_one_process()
    check_crop(kind_of(arguments), arguments.crop)  # before the images are read
    splits = read_data(arguments)
    model = model_of(arguments, splits["train"])
    output = arguments.output
    folder = output / model.model_type
    with reserved("--output", output):
        if not arguments.resume:
            remove_run(folder, arguments.overwrite)
        print_data(model.model_type, splits)
        if not arguments.resume:
            draw_data(splits, output / DATA)
        options = {name: getattr(arguments, name) for name in SETTINGS}
        lengths = {name: getattr(arguments, name) for name in ("steps", "save_every", "resume")}
        model, report = trained(model, splits, output, settings_of(options, splits), **lengths)
        print_report(report)
        draw_predictions({"predicted": model}, splits["validation"], output / PREDICTIONS)
    print(f"Wrote the best model, {folder}/, and {', '.join(FILES)} in {output}/.")
    print(f"Label your images: python -m mlx_unpool_zoo predict {folder} IMAGE ...")
    print(f"Train longer: the same command with --resume --steps {2 * arguments.steps}")
    return 0


def remove_run(model: Path, overwrite: bool) -> None:
    """Remove the files of an earlier run, except its model, which the new run replaces.

    Raises:
        ValueError: If there are any and ``overwrite`` is False, or the folder has another model.
    """
    others = [path for path in models_in(model.parent) if path != model]
    if others:
        raise ValueError(f"{others[0]} is the model of another run: pass another --output.")
    files = [model.with_name(name) for name in FILES]
    found = [path for path in (model, *files) if path.exists()]
    if found and not overwrite:
        raise ValueError(f"{found[0]} exists: pass {how_to_go_on(model.parent)}.")
    for path in files:
        path.unlink(missing_ok=True)


def how_to_go_on(output: Path) -> str:
    """The options of a command whose output folder has an earlier run."""
    options = "--overwrite to replace it, or another --output"
    if (output / CHECKPOINT).exists():
        return f"--resume to continue its run, {options}"
    return options


def print_data(name: str, splits: dict[str, Pictures]) -> None:
    """Print the number of images and the classes."""
    data = splits["train"]
    others = "".join(
        f", {len(splits[name].pairs)} for {name}" for name in SPLITS[1:] if name in splits
    )
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
