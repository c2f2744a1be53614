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
from support.command_line import run_program
from support.digit_scenes import CLASS_NAMES, Scenes
from support.drawing import draw_rows
from support.files import replacing
from support.folders import Pictures, colour_of, folders_of, read_folders
from support.training import adamw, parse_options, train, weighted_cross_entropy


def parse_arguments() -> argparse.Namespace:
    """Parse and check the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("--data", type=Path, nargs="+", help="folder with images/ and masks/, or both folders")
    add("--validation", type=Path, nargs="+", help="the same (default: val/, or a fifth of --data)")
    add("--classes", type=Path, help="names and colours (default: classes.txt beside the masks)")
    add("--model", default="enet", help="enet (default), segnet, or the folder of a model")
    add("--side", type=int, default=256, help="reduce pictures to this shorter side (default: 256)")
    add("--learning-rate", type=float, default=0.01, help="peak, of AdamW (default: 0.01)")
    add("--compile", action="store_true", help="compile the step; minutes on a CPU")
    add("--no-augmentation", action="store_true", help="do not mirror, scale or brighten pictures")
    add("--patience", type=int, help="stop after this many checkpoints without a better model")
    arguments = parse_options(parser, 300, 4, "demo/train")
    if arguments.side < 8 or not 0 < arguments.learning_rate < math.inf:
        parser.error("--side must be 8 or more, and --learning-rate positive and finite")
    if not arguments.data and (arguments.validation or arguments.classes):
        parser.error("--validation and --classes need --data")
    return arguments


def read_data(arguments: argparse.Namespace) -> tuple[Pictures, Pictures]:
    """The pictures for training and for validation."""
    if not arguments.data:
        count = 4 if arguments.smoke else 200
        return drawn("train", count), drawn("validation", max(1, count // 5))
    data = read_folders(arguments.data, arguments.side, arguments.classes)
    validation = arguments.validation
    if not validation and folders_of(arguments.data)[0].name == "train":
        validation = folders_of(arguments.data, "val")
    if not validation:
        return data.divided()
    return data, read_folders(validation, arguments.side, data.classes)


def drawn(split: str, count: int) -> Pictures:
    """Drawn scenes: digits over photographs."""
    pictures, truth = Scenes(split, size=96, digits=(4, 8), seed=0).batch(count)
    pairs = zip((pictures * 255).astype(np.uint8), truth.astype(np.uint8), strict=True)
    return Pictures([*pairs], [{"name": n} | colour_of(i) for i, n in enumerate(CLASS_NAMES)])


def model_of(name: str, data: Pictures, side: int) -> zoo.Model:
    """A new model, or the one in a folder, with new weights where the number of classes differs."""
    count = len(data.classes)
    if name == "enet":
        model: zoo.Model = zoo.ENet(count)
        model.about.input["normalisation"] = IMAGENET
    elif name == "segnet":
        model = zoo.SegNet(count, decoder_kernel=3, coarse=False)
    elif not Path(name).is_dir():
        raise ValueError(f"--model must be enet, segnet or the folder of a model, but got {name}.")
    else:
        model = zoo.from_pretrained(name)
        if not model.segments or model._inputs != (3, 2):
            raise ValueError(f"--model must label the pixels of pictures, unlike {name}.")
        options = {"num_classes": count, "ignore_mismatched_sizes": True, "dtype": "float32"}
        model = zoo.from_pretrained(name, **options)
    model.about.classes = [{"name": c["name"], "colour": c["colour"]} for c in data.classes]
    model.about.input["side"] = side
    return model


def loss_of(model: zoo.Model, inputs: mx.array, classes: mx.array, weights: mx.array) -> mx.array:
    """The weighted mean loss over pixels."""
    return weighted_cross_entropy(model(inputs), classes, weights)


def main() -> int:
    """Run the program and return the exit status."""
    arguments = parse_arguments()
    output, world = arguments.output, mx.distributed.init()
    data, held = read_data(arguments)
    data.class_weights()  # raises an error if no pixel counts
    mx.random.seed(arguments.seed)
    model = model_of(arguments.model, data, arguments.side)
    kind, folder = model.model_type, output / model.model_type
    checkpoint = output / f"checkpoint-{kind}.safetensors"
    if world.rank() == 0:
        if checkpoint.exists() and not arguments.resume:
            raise ValueError(f"{checkpoint} is of an earlier run: pass --resume, or another --output.")
        names = cut([entry["name"] for entry in data.classes])
        pictures = f"{len(data.pairs)} pictures, {len(held.pairs)} for validation"
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
        return text, since == arguments.patience

    kept = ("data", "validation", "model", "side", "batch", "seed", "learning_rate", "no_augmentation")
    train(
        model,
        adamw(arguments.learning_rate, arguments.steps),
        loss_of,
        data.batches(model, arguments.batch, arguments.seed, not arguments.no_augmentation),
        arguments.steps,
        checkpoint,
        settings={name: str(getattr(arguments, name)) for name in kept}
        | {"classes": [entry["name"] for entry in data.classes]},
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
    report = held.metrics_of(model)
    with replacing(output / "metrics.json") as partial:
        partial.write_text(json.dumps(report, indent=2) + "\n")
    for name, value in report["iou"].items():
        print(f"{f'IoU {name}':22}{value:8.3f}")
    print(f"{'mean IoU':22}{report['miou']:8.3f}\n{'pixel accuracy':22}{report['pixel_accuracy']:8.3f}")
    shown, truth = zip(*held.pairs[:4], strict=True)
    columns = {"picture": shown, "truth": truth, "predicted": [*map(model.predict, shown)]}
    draw_rows(columns, model.about.classes, output / "predictions.png")
    print(f"Wrote the best model, {folder}/, and {output}/metrics.json, predictions.png and log-{kind}.csv.")
    print(f"Label your pictures: python examples/predict.py {folder} PICTURE ...")
    print(f"Train longer: the same command with --resume --steps {2 * arguments.steps}")
    return 0


if __name__ == "__main__":
    run_program(main)
