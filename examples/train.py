"""Train an ENet or a SegNet on your images and masks, or on scenes that the program draws.

    python examples/train.py --data photos      photos/images/a.jpg with photos/masks/a.png, and so on
    python examples/train.py --data CamVid      the layout of CamVid: train/, trainannot/, val/, valannot/
    python examples/train.py --data images masks --validation test test_masks      pairs of folders
    python examples/train.py                    handwritten digits, drawn over photographs
    python examples/train.py --data photos --model model/enet --output new    start from a model of the zoo
    python examples/train.py --data photos --resume --steps 600         continue, also after the last step

Also: JPEGImages/ with SegmentationClass/ or SegmentationClassPNG/ (VOC, CVAT, labelme).
The pixels of a mask (PNG) are class numbers or colours. 255 is ignored, unless it occurs only with 0, and
so are classes called "unlabelled" or "void". Names and colours of the classes are in photos/classes.txt, one
per line, "number name red green blue" or only the name, or in the file of labelme (class_names.txt) or CVAT
(labelmap.txt); without a file they are those that occur in the masks. All images are held in memory.
The folder --output gets the model with the best validation mean IoU of all checkpoints (a folder of the zoo,
for predict.py and export.py), its metrics (JSON), a figure, the log (CSV) and a checkpoint.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from common.classes import palette
from common.command_line import run_program
from common.digit_scenes import CLASS_NAMES, SPLITS, Scenes
from common.drawing import draw_rows, overlaid
from common.files import reserved, write_file
from common.folders import folders_of, read_folders
from common.pictures import Pictures, described
from common.training import adamw, parse_options, train, weighted_cross_entropy

import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
from mlx_unpool_zoo.configuration import IMAGENET
from mlx_unpool_zoo.metrics import SCORES
from mlx_unpool_zoo.published import PUBLISHED
from mlx_unpool_zoo.pytorch import cut
from mlx_unpool_zoo.segnet import DECODERS
from mlx_unpool_zoo.storage import WEIGHTS

FILES = ("checkpoint.safetensors", "log.csv", "metrics.json", "predictions.png", "data.png")
# What a resumed run must have in common with the run that it continues, besides the data.
SETTINGS = ("model", "decoder", "decoder_kernel", "crop", "side", "batch", "seed", "learning_rate")


def parse_arguments() -> argparse.Namespace:
    """Parse and check the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("--data", type=Path, nargs="+", help="folder with images/ and masks/, or both folders")
    add("--validation", type=Path, nargs="+", help="as --data (default: val/ or a fifth of --data)")
    add("--test", type=Path, nargs="+", help="as --data, to test the best model")
    add("--classes", type=Path, help="names and colours (default: classes.txt beside the masks)")
    add("--mask-ending", help="how the names of masks end, if it is not clear, such as _labelIds")
    absent = "train although no pixel has some class, and pixels with 255 are ignored"
    add("--allow-absent-classes", action="store_true", help=absent)
    add("--model", default="enet", help="enet (default), segnet, or the folder of a model")
    add("--decoder", choices=DECODERS, help="for segnet (default: unpool)")
    add("--decoder-kernel", type=int, choices=(1, 3, 5, 7), help="kernel size, for segnet (default: 3)")
    add("--side", type=int, default=256, help="scale larger images to this shorter side (default: 256)")
    add("--crop", type=int, help="side of training crops (default: median of the shorter sides)")
    add("--learning-rate", type=float, default=0.01, help="peak learning rate (default: 0.01)")
    add("--compile", action="store_true", help="compile the step (takes minutes on a CPU)")
    add("--seed", type=int, default=0, help="seed of weights and data (default: 0)")
    add("--overwrite", action="store_true", help="replace the run in --output (without --resume)")
    arguments = parse_options(parser, 300, 4, "demo/train")
    if arguments.side < 8 or (arguments.crop is not None and arguments.crop < 8):
        parser.error("--side and --crop must be 8 or more")
    if not 0 < arguments.learning_rate < math.inf:
        parser.error("--learning-rate must be positive and finite")
    if not arguments.data and (arguments.validation or arguments.test or arguments.classes):
        parser.error("--validation, --test and --classes need --data")
    if arguments.model == "segnet":
        arguments.decoder = arguments.decoder or "unpool"
        arguments.decoder_kernel = arguments.decoder_kernel or 3
    elif arguments.decoder or arguments.decoder_kernel:
        parser.error("--decoder and --decoder-kernel need --model segnet")
    return arguments


def read_data(arguments: argparse.Namespace) -> dict[str, Pictures]:
    """The images for training, for validation and, if there are any, for a test."""
    if not arguments.data:
        counts = dict(zip(SPLITS, (4, 1, 1) if arguments.smoke else (200, 40, 40), strict=True))
        return {split: drawn(split, count) for split, count in counts.items()}
    data = read_folders(arguments.data, arguments.side, arguments.classes, mask_ending=arguments.mask_ending)
    found, camvid = {"train": data}, folders_of(arguments.data)[0].name == "train"
    for split, folder in (("validation", "val"), ("test", "test")):
        folders = getattr(arguments, split)
        if not folders and camvid and (arguments.data[0] / f"{folder}annot").is_dir():
            folders = folders_of(arguments.data, folder)
        if folders:
            ending = arguments.mask_ending
            found[split] = read_folders(folders, arguments.side, like=data, mask_ending=ending)
    if "validation" not in found:
        found["train"], found["validation"] = data.divided()
    return found


def drawn(split: str, count: int) -> Pictures:
    """Drawn scenes: digits over photographs."""
    pictures, truth = Scenes(split, size=96, digits=(4, 8), seed=0).batch(count)
    pairs = zip((pictures * 255).astype(np.uint8), truth.astype(np.uint8), strict=True)
    colours = palette(len(CLASS_NAMES))
    return Pictures([*pairs], [{"name": n, "colour": c} for n, c in zip(CLASS_NAMES, colours, strict=True)])


def model_of(arguments: argparse.Namespace, data: Pictures) -> zoo.Model:
    """A new model, or the one in a folder, with new weights where the number of classes differs."""
    count, name = len(data.classes), arguments.model
    if name == "enet":
        model: zoo.Model = zoo.ENet(count)
        model.about.input["normalisation"] = IMAGENET
    elif name == "segnet":
        options = {"decoder": arguments.decoder, "decoder_kernel": arguments.decoder_kernel}
        model = zoo.SegNet(count, coarse=False, **options)
    elif not Path(name).is_dir() and name not in PUBLISHED:
        raise ValueError(f"--model must be enet, segnet, hair or the folder of a model, but got {name}.")
    else:
        model = zoo.from_pretrained(name)
        if not model.segments or (model._pictures, model._inputs[1]) != (3, 2):
            raise ValueError(f"--model must segment RGB images, unlike {name}.")
        options = {"num_classes": count, "ignore_mismatched_sizes": True, "dtype": "float32"}
        model = zoo.from_pretrained(name, **options)
    model.about.classes = data.classes
    model.about.input["side"] = arguments.side
    model.about.input.pop("white_level", None)
    if data.white_level:
        model.about.input["white_level"] = data.white_level
    source = " ".join(path.name for path in arguments.data or [Path("drawn digits")])
    model.about.source = f"trained by examples/train.py on {source}"
    return model


def loss_of(model: zoo.Model, inputs: mx.array, classes: mx.array, weights: mx.array) -> mx.array:
    """The weighted mean loss over pixels."""
    return weighted_cross_entropy(model(inputs), classes, weights)


def main() -> int:
    """Run the program and return the exit status."""
    arguments = parse_arguments()
    splits = read_data(arguments)
    data, held, output = splits["train"], splits["validation"], arguments.output
    data.class_weights()  # raises an error if no pixel counts
    understood = described(splits, arguments.allow_absent_classes)
    mx.random.seed(arguments.seed)
    model = model_of(arguments, data)
    settings = {name: getattr(arguments, name) for name in SETTINGS}
    settings |= {"classes": [entry["name"] for entry in data.classes]}
    settings |= {"labels": [entry.get("label") for entry in data.classes]}
    settings |= {"data": data.summary(), "validation": held.summary()}
    if mx.distributed.init().rank() > 0:
        train_model(model, data, held, settings, arguments)
        return 0
    with reserved("--output", output):
        if not arguments.resume:
            files = [output / name for name in (model.model_type, *FILES)]
            if (old := [path for path in files if path.exists()]) and not arguments.overwrite:
                hint = "--resume to continue its run, " * files[1].exists() + "--overwrite to replace it, or"
                raise ValueError(f"{old[0]} exists: pass {hint} another --output.")
            for path in files[1:]:
                path.unlink(missing_ok=True)
        others = "".join(f", {len(splits[name].pairs)} for {name}" for name in SPLITS[1:] if name in splits)
        text = f"{model.model_type}: {len(data.pairs)} images{others}, {len(data.classes)} classes"
        text += f" ({cut(settings['classes'])})."
        if data.white_level:
            text += f" In images of more than 8 bits, white is {data.white_level:g}."
        print(text, understood, sep="\n", flush=True)
        if not arguments.resume:
            images, masks = zip(*data.pairs[:6], strict=True)
            drawn_on = [overlaid(*pair, data.classes) for pair in data.pairs[:6]]
            hatched = any((mask >= len(data.classes)).any() for mask in masks)
            columns = {"image": images, "with its mask": drawn_on}
            draw_rows(columns, data.classes, output / FILES[4], hatched=hatched)
            print(f"Check the first images with their masks: {output / FILES[4]}")
        train_model(model, data, held, settings, arguments)
        model = zoo.from_pretrained(output / model.model_type)
        report = {split: splits[split].metrics_of(model) for split in SPLITS[1:] if split in splits}
        written = {"settings": settings, "train": data.counted()} | report
        write_file(output / FILES[2], json.dumps(written, indent=2).encode())
        print_report(report)
        shown, truth = zip(*held.pairs[:4], strict=True)
        columns = {"image": shown, "mask": truth, "predicted": [*map(model.predict, shown)]}
        draw_rows(columns, model.about.classes, output / FILES[3])
    print(f"Wrote the best model, {output / model.model_type}/, and {', '.join(FILES)} in {output}/.")
    print(f"Label your images: python examples/predict.py {output / model.model_type} IMAGE ...")
    print(f"Train longer: the same command with --resume --steps {2 * arguments.steps}")
    return 0


def train_model(
    model: zoo.Model, data: Pictures, held: Pictures, settings: dict[str, Any], arguments: argparse.Namespace
) -> None:
    """Train a model. The folder ``--output`` has the one with the best validation mean IoU so far."""
    folder, best = arguments.output / model.model_type, None if arguments.resume else -math.inf

    def keep_the_best(stopped: bool) -> tuple[str, float]:
        nonlocal best
        exists = (folder / WEIGHTS).exists()
        if stopped and not exists:
            model.save_pretrained(folder)
        if stopped:
            kind = "an earlier" if best == -math.inf else "the best"
            return f". {folder}/ has {kind if exists else 'this'} model.", math.nan
        if best is None:  # that of the run which this one continues
            best = held.metrics_of(zoo.from_pretrained(folder))["miou"] if exists else -math.inf
            best = -math.inf if best is None else best
        score = held.metrics_of(model)["miou"]
        if score is None:  # then the last model is kept
            if best == -math.inf:
                model.save_pretrained(folder)
            return ", validation mean IoU -", math.nan
        is_best, best = score > best, max(score, best)
        if is_best:
            model.save_pretrained(folder)
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
        seed=arguments.seed,
        resume=arguments.resume,
        description=model.model_type,
        compiled=arguments.compile,
        log=arguments.output / FILES[1],
        at_checkpoint=keep_the_best,
    )


def print_report(report: dict[str, Any]) -> None:
    """Print the metrics of each split in a column."""
    print(f"{'':22}" + "".join(f"{split:>12}" for split in report))
    names = dict.fromkeys(name for found in report.values() for name in found["iou"])
    rows = {f"IoU {name}": [found["iou"].get(name) for found in report.values()] for name in names}
    rows |= {name: [found[key] for found in report.values()] for key, name in SCORES.items()}
    for name, values in rows.items():
        print(f"{name:22}" + "".join(f"{'-' if v is None else f'{v:.3f}':>12}" for v in values))


if __name__ == "__main__":
    run_program(main)
