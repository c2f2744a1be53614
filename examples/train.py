"""Train an ENet or a SegNet on your pictures and masks, or on scenes that the program draws.

    python examples/train.py --data photos      photos/images/a.jpg with photos/masks/a.png, and so on
    python examples/train.py --data CamVid      the layout of CamVid: train/, trainannot/, val/, valannot/
    python examples/train.py --data train masks --validation test test_masks      pairs of folders
    python examples/train.py                    handwritten digits, drawn over photographs
    python examples/train.py --data photos --model model/enet --output new    start from a model of the zoo
    python examples/train.py --data photos --resume --steps 600         continue, here also beyond the end

Further layouts: JPEGImages/ with SegmentationClass/ (VOC, CVAT, labelme), and a.jpg with a_mask.png.
The pixels of a mask (PNG) are class numbers or colours. 255 does not count, unless 0 and 255 are the only
numbers, and neither do classes called "unlabelled" or "void". Names and colours of the classes are in
photos/classes.txt, one per line: "number name red green blue", or in the file of labelme (class_names.txt) or
CVAT (labelmap.txt); without a file they are those that occur in the masks. All pictures are held in memory.
The program writes into the folder --output: the model with the best validation mean IoU of all checkpoints
(a folder of the zoo, for predict.py and export.py), its results (JSON) and a picture, the log (CSV) and the
state of the run.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import support.installed  # noqa: F401

# isort: split
import mlx.core as mx
import mlx_unpool_zoo as zoo
import numpy as np
from mlx_unpool_zoo.model import IMAGENET
from mlx_unpool_zoo.pytorch import cut
from mlx_unpool_zoo.segnet import DECODERS
from support.command_line import run_program
from support.digit_scenes import CLASS_NAMES, SPLITS, Scenes
from support.drawing import draw_rows
from support.files import replacing
from support.folders import Pictures, colour_of, folders_of, read_folders
from support.training import adamw, parse_options, train, weighted_cross_entropy

SCORES = {"miou": "mean IoU", "boundary_f_score": "boundary F-score", "pixel_accuracy": "pixel accuracy"}


def parse_arguments() -> argparse.Namespace:
    """Parse and check the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("--data", type=Path, nargs="+", help="folder with images/ and masks/, or both folders")
    add("--validation", type=Path, nargs="+", help="the same (default: val/, or a fifth of --data)")
    add("--classes", type=Path, help="names and colours (default: classes.txt beside the masks)")
    add("--model", default="enet", help="enet (default), segnet, or the folder of a model")
    add("--decoder", choices=DECODERS, help="of --model segnet (default: unpool)")
    add("--decoder-kernel", type=int, help="width of its convolutions in the decoder (default: 3)")
    add("--test", type=Path, nargs="+", help="like --validation, for the best model at the end")
    add("--crop", type=int, help="side of the training squares (default: median of the shorter sides)")
    add("--side", type=int, default=256, help="reduce pictures to this shorter side (default: 256)")
    add("--learning-rate", type=float, default=0.01, help="peak, of AdamW (default: 0.01)")
    add("--compile", action="store_true", help="compile the step; minutes on a CPU")
    add("--augment", action="store_true", help=argparse.SUPPRESS)
    arguments = parse_options(parser, 300, 4, "demo/train")
    if arguments.side < 8 or not 0 < arguments.learning_rate < math.inf:
        parser.error("--side must be 8 or more, and --learning-rate positive and finite")
    if not arguments.data and (arguments.validation or arguments.test or arguments.classes):
        parser.error("--validation, --test and --classes need --data")
    if arguments.model != "segnet" and (arguments.decoder or arguments.decoder_kernel):
        parser.error("--decoder and --decoder-kernel need --model segnet")
    if arguments.model == "segnet":
        arguments.decoder = arguments.decoder or "unpool"
        arguments.decoder_kernel = arguments.decoder_kernel or 3
        if arguments.decoder_kernel < 1 or arguments.decoder_kernel % 2 == 0:
            parser.error("--decoder-kernel must be odd and positive")
    if arguments.crop is not None and arguments.crop < 8:
        parser.error("--crop must be 8 or more")
    return arguments


def read_data(arguments: argparse.Namespace) -> dict[str, Pictures]:
    """The pictures for training, for validation and, if there are any, for a test."""
    if not arguments.data:
        counts = dict(zip(SPLITS, (4, 1, 1) if arguments.smoke else (200, 40, 40), strict=True))
        return {split: drawn(split, count) for split, count in counts.items()}
    data = read_folders(arguments.data, arguments.side, arguments.classes)
    found, camvid = {"train": data}, folders_of(arguments.data)[0].name == "train"
    for split, folder in (("validation", "val"), ("test", "test")):
        folders = getattr(arguments, split)
        if not folders and camvid and (arguments.data[0] / f"{folder}annot").is_dir():
            folders = folders_of(arguments.data, folder)
        if folders:
            found[split] = read_folders(folders, arguments.side, data.classes)
    if "validation" not in found:
        found["train"], found["validation"] = data.divided()
    return found


def drawn(split: str, count: int) -> Pictures:
    """Drawn scenes: digits over photographs."""
    pictures, truth = Scenes(split, size=96, digits=(4, 8), seed=0).batch(count)
    pairs = zip((pictures * 255).astype(np.uint8), truth.astype(np.uint8), strict=True)
    return Pictures([*pairs], [{"name": n} | colour_of(i) for i, n in enumerate(CLASS_NAMES)])


def model_of(arguments: argparse.Namespace, data: Pictures) -> zoo.Model:
    """A new model, or the one in a folder, with new weights where the number of classes differs."""
    count, name = len(data.classes), arguments.model
    if name == "enet":
        model: zoo.Model = zoo.ENet(count)
        model.about.input["normalisation"] = IMAGENET
    elif name == "segnet":
        options = {"decoder": arguments.decoder, "decoder_kernel": arguments.decoder_kernel}
        model = zoo.SegNet(count, coarse=False, **options)
    elif not Path(name).is_dir():
        raise ValueError(f"--model must be enet, segnet or the folder of a model, but got {name}.")
    else:
        model = zoo.from_pretrained(name)
        if not model.segments or model._inputs != (3, 2):
            raise ValueError(f"--model must label the pixels of pictures, unlike {name}.")
        options = {"num_classes": count, "ignore_mismatched_sizes": True, "dtype": "float32"}
        model = zoo.from_pretrained(name, **options)
    model.about.classes = [{"name": c["name"], "colour": c["colour"]} for c in data.classes]
    model.about.input["side"] = arguments.side
    return model


def loss_of(model: zoo.Model, inputs: mx.array, classes: mx.array, weights: mx.array) -> mx.array:
    """The weighted mean loss over pixels."""
    return weighted_cross_entropy(model(inputs), classes, weights)


def main() -> int:
    """Run the program and return the exit status."""
    arguments = parse_arguments()
    output, world = arguments.output, mx.distributed.init()
    splits = read_data(arguments)
    data, held = splits["train"], splits["validation"]
    data.class_weights()  # raises an error if no pixel counts
    mx.random.seed(arguments.seed)
    model = model_of(arguments, data)
    kind, folder = model.model_type, output / model.model_type
    checkpoint = output / f"checkpoint-{kind}.safetensors"
    if world.rank() == 0:
        if checkpoint.exists() and not arguments.resume:
            raise ValueError(f"{checkpoint} is of an earlier run: pass --resume, or another --output.")
        names = cut([entry["name"] for entry in data.classes])
        pictures = f"{len(data.pairs)} pictures, {len(held.pairs)} for validation"
        if "test" in splits:
            pictures += f", {len(splits['test'].pairs)} for the test"
        print(f"{kind}: {pictures}, {len(data.classes)} classes ({names}).", flush=True)
    source = " ".join(path.name for path in arguments.data or [Path("drawn digits")])
    model.about.source = f"trained by examples/train.py on {source}"

    def keep_the_best(rows: list[list[float]], stopped: bool) -> tuple[str, bool]:
        """Save the model if its validation mean IoU is the best so far, or after Ctrl-C if there is none."""
        scores = [score for *_, score in rows[:-1] if not math.isnan(score)]
        if stopped:
            if not scores:
                model.save_pretrained(folder)
            return f". {folder}/ has {'the best model so far' if scores else 'this model'}.", False
        scores.append(round(held.metrics_of(model)["miou"], 6))
        rows[-1][-1], best = scores[-1], scores.index(max(scores))
        since = len(scores) - 1 - best
        if not since:
            model.save_pretrained(folder)
        text = f", validation mean IoU {scores[-1]:.3f}{', the best so far' * (not since)}"
        return text, False

    kept = ("model", "decoder", "decoder_kernel", "crop", "side", "batch", "seed", "learning_rate", "augment")
    settings = {name: getattr(arguments, name) for name in kept}
    settings |= {"classes": [entry["name"] for entry in data.classes], "data": data.summary()}
    settings |= {"validation": held.summary()}
    train(
        model,
        adamw(arguments.learning_rate, arguments.steps),
        loss_of,
        data.batches(model, arguments.batch, arguments.seed, arguments.crop, arguments.augment),
        arguments.steps,
        checkpoint,
        settings=settings,
        save_every=arguments.save_every,
        seed=arguments.seed,
        resume=arguments.resume,
        description=kind,
        compiled=arguments.compile,
        log=output / f"log-{kind}.csv",
        at_checkpoint=keep_the_best,
    )
    if world.rank() > 0:
        return 0
    model = zoo.from_pretrained(folder)
    report = {split: splits[split].metrics_of(model) for split in SPLITS[1:] if split in splits}
    with replacing(output / "metrics.json") as partial:
        partial.write_text(json.dumps({"settings": settings} | report, indent=2) + "\n")
    print(f"{'':22}" + "".join(f"{split:>12}" for split in report))
    for name in report["validation"]["classes"]:
        values = (found["iou"].get(name) for found in report.values())
        print(f"{f'IoU {name}':22}" + "".join(f"{'-' if v is None else f'{v:.3f}':>12}" for v in values))
    for key, name in SCORES.items():
        print(f"{name:22}" + "".join(f"{found[key]:12.3f}" for found in report.values()))
    shown, truth = zip(*held.pairs[:4], strict=True)
    columns = {"picture": shown, "truth": truth, "predicted": [*map(model.predict, shown)]}
    draw_rows(columns, model.about.classes, output / "predictions.png")
    print(f"Wrote the best model, {folder}/, and {output}/metrics.json, predictions.png and log-{kind}.csv.")
    print(f"Label your pictures: python examples/predict.py {folder} PICTURE ...")
    print(f"Train longer: the same command with --resume --steps {2 * arguments.steps}")
    return 0


if __name__ == "__main__":
    run_program(main)
