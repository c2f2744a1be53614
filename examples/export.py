"""Export a model of the zoo to one file that runs without Python (see docs/export.md).

    python examples/export.py fastsurfer/axial network.mlxfn --shape 1 256 256 7
    python examples/export.py runs/train/segnet network.mlxfn --shape 1 96 96 3 --shape 4 96 96 3

The exported function accepts only the given shapes, channels last. It runs only on the kind of
device (CPU or GPU) for which it was exported, by default that of MLX's default device. Before the
file gets its final name, it is loaded and compared with the model.
"""

import argparse
from pathlib import Path

from mlx_unpool_zoo.commands.command_line import extra, run_program

with extra("zoo"):
    import mlx.core as mx
    import mlx.nn as nn
    import mlx_unpool_zoo as zoo
    from mlx.utils import tree_map
    from mlx_unpool_zoo.commands.outputs import check_output_file
    from mlx_unpool_zoo.files import replacing

    import mlx_unpool


def export(model: nn.Module, shapes: list[tuple[int, ...]], path: Path) -> float:
    """Export a model in evaluation mode as a function of one float32 array.

    Args:
        model: The model. Its parameters are evaluated and made contiguous, because MLX cannot
            export lazily loaded arrays and exports strided ones incorrectly.
        shapes: The input shapes that the function accepts.
        path: The file to write.

    Returns:
        The largest difference between the scores of the file and of the model on random inputs,
        relative to the range of the scores.

    Raises:
        ValueError: If that difference is above 1e-5, or the model does not accept a shape.
    """
    model.eval()
    model.update(tree_map(mx.contiguous, model.parameters()))
    mx.eval(model.parameters())
    farthest = 0.0
    with replacing(path) as partial:
        try:
            with mlx_unpool.exporting(), mx.exporter(str(partial), model) as exporter:
                for shape in shapes:
                    exporter(mx.zeros(shape))
        except RuntimeError as error:  # a full disk, or a kernel that fails
            if "write" not in str(error):
                raise
            raise OSError(f"{path} cannot be written: {error}") from None
        read = mx.import_function(str(partial))
        for shape in shapes:
            x = mx.random.uniform(shape=shape, key=mx.random.key(0))
            expected, (got,) = model(x), read(x)
            far = mx.abs(got - expected).max() / (expected.max() - expected.min())
            farthest = max(farthest, far.item())
        if not farthest <= 1e-5:
            raise ValueError(
                f"{path} returns scores that differ from the model's by {farthest:.0e} of their "
                "range, more than 1e-5."
            )
    return farthest


def main() -> int:
    """Run the program and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], epilog="Inputs are float32, channels last."
    )
    parser.add_argument("model", help="folder of a model, or its name on the Hugging Face Hub")
    parser.add_argument("file", type=Path, help="file to write (.mlxfn)")
    shape = "shape of an input, such as 1 256 256 7; may be given several times"
    parser.add_argument("--shape", type=int, nargs="+", action="append", required=True, help=shape)
    parser.add_argument(
        "--device", choices=("cpu", "gpu"), help="device to export for (default: MLX's)"
    )
    arguments = parser.parse_args()
    check_output_file("file", arguments.file)
    if arguments.device:
        mx.set_default_device(getattr(mx, arguments.device))
    model = zoo.from_pretrained(arguments.model)
    far = export(model, [tuple(shape) for shape in arguments.shape], arguments.file)
    size = arguments.file.stat().st_size / 2**20
    if "range" in model.about.input:
        low, high = model.about.input["range"]
        print(
            f"Inputs: before the normalisation, {low:g} to {high:g} are 0 to 255, others clipped."
        )
    differ = f"scores differ from the model's by {far:.0e} of their range"
    print(f"{arguments.file}: {size:.1f} MiB, {differ}.")
    return 0


if __name__ == "__main__":
    run_program(main)
