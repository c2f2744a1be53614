"""Count the bytes that a GPU would move in the max pooling of mlx.nn and of this library.

    python tests/metal/count_bytes.py        write benchmarks/results/bytes.json (a minute)

The cases are those of benchmarks/mlx_nn.py, whose tables show the result. Nothing is measured, so it is the
same on every machine: for mlx.nn, the bytes of MLX's graph; for this library, those of its kernels on the
emulated device.
"""

import json
import sys
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import emulator
import mlx.core as mx

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import harness
import mlx_nn

# MLX primitives that return a view. Reshape and Flatten copy an array that is not contiguous.
VIEWS = {"AsStrided", "Broadcast", "Copy", "ExpandDims", "Flatten", "Reshape", "Slice", "Split"}
VIEWS |= {"Squeeze", "StopGradient", "Transpose", "Unflatten"}
STRIDED, RESHAPING = {"AsStrided", "Slice", "Transpose"}, {"Flatten", "Reshape"}
Function = Callable[..., Any]
FUSED = {"AsType", "Divide", "Equal", "Multiply"}  # by mx.compile, of those in mlx.nn's pools


def graph_cost(function: Function, *arrays: mx.array, compiled: bool = False) -> tuple[int, int, int]:
    """Bytes that a function's primitives move, with a perfect cache and without one, and kernel launches.

    Creating a view counts as 0 bytes. A primitive that reads a view reads each element of the underlying
    array once. Without a cache, it reads the elements of overlapping windows once per window. With
    ``compiled``, arrays between two elementwise primitives are neither written nor read.
    """
    nodes: list[dict[str, Any]] = []
    mx.export_function(nodes.append, function, *arrays)
    nodes = [node for node in nodes if node.get("type") == "primitive"]
    broadcast: dict[str, str] = {}  # the array that a view repeats
    readers: dict[str, set[str]] = {}
    for node in nodes:
        inputs = [broadcast.get(name, name) for name, *_ in node["inputs"]]
        if node["name"] == "Broadcast":
            broadcast[node["outputs"][0][0]] = inputs[0]
        else:
            for name in inputs:
                readers.setdefault(name, set()).add(node["name"])
    totals, launches = [0, 0], 0
    underlying: tuple[dict[str, int], dict[str, int]] = {}, {}
    strided: set[str] = set()
    for node in nodes:
        size = {name: prod(s) * t.size for name, s, t in [*node["inputs"], *node["outputs"]]}
        names, outputs = ([name for name, *_ in node[key]] for key in ("inputs", "outputs"))
        copies = node["name"] in RESHAPING and names[0] in strided
        view = node["name"] in VIEWS and not copies
        if node["name"] in STRIDED or (view and names[0] in strided):
            strided.update(outputs)
        fused = compiled and node["name"] in FUSED and readers.get(outputs[0], {""}) <= FUSED
        launches += not view and not fused
        for cached, sizes in zip((True, False), underlying):
            if fused:
                sizes[outputs[0]] = 0
            inputs = [sizes.get(name, size[name]) for name in names]
            if not view:
                totals[not cached] += sum(inputs) + sum(sizes.get(n, size[n]) for n in outputs)
            elif cached or node["name"] != "AsStrided":
                sizes.update({name: min(inputs[0], size[name]) for name in outputs})
        if node["name"] == "Pad":  # fills the output, then copies the input into it
            launches += 1
            totals = [total + size[names[0]] for total in totals]
    return totals[0], totals[1], launches


def kernel_cost(function: Function, *arrays: mx.array) -> tuple[int, int, int]:
    """Bytes that this library's kernels move, bytes of the lines that SIMD groups access, and dispatches."""
    device = emulator.counted(lambda: function(*arrays))
    unique, lines = (sum(t[key] for _, t in device.traffic()) for key in ("unique_bytes", "simd_lines"))
    return unique, 128 * lines, device.dispatches


def counted(case: mlx_nn.Case) -> dict[str, Any]:
    """Bytes of a forward and a backward pass on a GPU."""
    x = mx.random.normal(case.shape, key=mx.random.key(0)).astype(case.dtype)
    pools = case.pools()
    cotangent = mx.ones_like(pools["mlx.nn"](x))
    mx.eval(x, cotangent)
    both = lambda who: lambda x, cotangent: [y[0] for y in mx.vjp(pools[who], [x], [cotangent])]
    figures = {"mlx.nn": graph_cost(both("mlx.nn"), x, cotangent)}
    figures["mlx.nn, compiled"] = graph_cost(both("mlx.nn"), x, cotangent, compiled=True)
    figures["ours"] = kernel_cost(both("ours"), x, cotangent)
    return {"case": case.name, "bytes": figures}


def main() -> None:
    """Write the results, one case per line."""
    with mx.stream(mx.cpu):
        lines = [json.dumps(counted(case)) for case in mlx_nn.CASES]
    (harness.RESULTS / "bytes.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
