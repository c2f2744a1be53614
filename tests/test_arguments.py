"""Invalid input: the type of the error; the caller, argument, value and limits in its message."""

import itertools
import re

import mlx.core as mx
import numpy as np
import pytest
from support.errors import fails
from support.kernel_cases import huge

import mlx_unpool
from mlx_unpool import MaxPool2d, MaxUnpool2d

RANKS = (1, 2, 3)
WITHOUT_PADDING = ("kernel_size", "stride", "dilation")
ONE_OR_MORE = (ValueError, "1 or more")
INTEGER = (TypeError, "an integer")
FLAG = (TypeError, "True or False")
FORMAT = (ValueError, "'channels_last' or 'channels_first'")


# argument, value, error, a part of the message
WINDOWS = [
    *((name, 0, *ONE_OR_MORE) for name in WITHOUT_PADDING),
    *((name, value, *INTEGER) for name in WITHOUT_PADDING for value in (True, 2.0, "2")),
    *(("kernel_size", value, ValueError, "an integer") for value in ((2, 2, 2, 2), ())),
    ("padding", -1, ValueError, "0 or more"),
    ("padding", 4, ValueError, "less than the window"),
    ("padding", "SAME", ValueError, "be 'same' or 'valid'"),
    ("padding", True, *INTEGER),
    ("data_format", "NCHW", *FORMAT),
    ("data_format", "NCHW", ValueError, " NCHW is 'channels_first'."),
    ("data_format", "NLC", ValueError, " NLC is 'channels_last'."),
]
POOLS = [
    ("ceil_mode", 1, *FLAG),
    ("return_indices", "yes", *FLAG),
    ("index_format", "packed", ValueError, "'flat' or 'window'"),
]
ADAPTIVE = [
    *(("output_size", value, *ONE_OR_MORE) for value in (0, -1, (2, 0))),
    *(("output_size", value, ValueError, "a tuple of 2") for value in ((5,), (2, 2, 2), ())),
    *(("output_size", value, *INTEGER) for value in (None, 2.0, True, (2, "3"))),
    ("return_indices", 1, *FLAG),
    ("data_format", None, *FORMAT),
]
FRACTIONAL = [
    ("kernel_size", 0, *ONE_OR_MORE),
    ("kernel_size", 2.0, *INTEGER),
    ("output_size", 0, *ONE_OR_MORE),
    ("output_size", (2, 2, 2), ValueError, "2 integers"),
    *(("output_ratio", value, ValueError, "between") for value in (1.0, (0.5,), float("nan"))),
    *(("output_ratio", value, TypeError, "a number") for value in ("half", True)),
    ("return_indices", 1, *FLAG),
    ("data_format", "NHWC", *FORMAT),
]
# function, ranks, required arguments, rows
KINDS = [
    ("max_pool", RANKS, {"kernel_size": 3}, (*WINDOWS, *POOLS)),
    ("max_unpool", RANKS, {"kernel_size": 3}, WINDOWS),
    ("adaptive_max_pool", [2], {"output_size": 2}, ADAPTIVE),
    ("fractional_max_pool", [2], {"kernel_size": 3, "output_size": 2}, FRACTIONAL),
]
ROWS = [
    (kind, n, needed, row) for kind, ranks, needed, rows in KINDS for n in ranks for row in rows
]


@pytest.mark.parametrize(("kind", "rank", "needed", "row"), ROWS)
def test_functions_and_layers_name_a_wrong_argument(kind, rank, needed, row):
    name, value, error, allowed = row
    arguments = needed | {name: value}
    if name == "output_ratio":
        del arguments["output_size"]
    x = mx.zeros((2, *[8] * rank, 3))
    arrays = [x, x.astype(mx.int32)][: 2 if kind == "max_unpool" else 1]
    function = getattr(mlx_unpool, f"{kind}{rank}d")
    layer = getattr(mlx_unpool, f"{kind.title().replace('_', '')}{rank}d")
    parts = name, allowed, repr(value)
    fails(lambda: function(*arrays, **arguments), error, function.__name__, *parts)
    fails(lambda: layer(**arguments), error, layer.__name__, *parts)


# Calls with one mistake: arguments, options, the error, the argument and parts of the message.
LINE, SMALL, SQUARE = mx.zeros((1, 4, 1)), mx.zeros((1, 3, 3, 1)), mx.zeros((1, 4, 4, 1))
PAIR = SQUARE, SQUARE.astype(mx.int32)  # of a pool
L32, I32, U8 = LINE.astype(mx.int32), SQUARE.astype(mx.int32), SQUARE.astype(mx.uint8)
OF_3, OF_2 = mx.zeros((1, 1, 1, 3), mx.int32), mx.zeros((2, 1, 1, 1, 1), mx.int32)  # planes
SAME = SQUARE, I32, 3, 2, "same"
SAMPLES = {"random_samples": mx.zeros((1, 1, 2))}
TAKE_3 = {"output_size": 3}
FIRST, TO_NCHW = {"data_format": "channels_first"}, {"target_data_format": "NCHW"}
NO_ARRAYS = np.zeros((1, 4, 1)), [[1.0]], None, 3.0
CALLS = {
    "max_pool1d": [
        ((mx.zeros((1, 4, 1), mx.complex64), 2), {}, TypeError, "x", "complex64"),
        ((mx.zeros((1, 4, 1), mx.bool_), 2), {}, TypeError, "x", "bool"),
        ((LINE, 3, 2, (0, 1)), {},
         ValueError, "padding", "'valid' or ((before, after),)", "(0, 1)"),
    ],
    "max_pool2d": [
        ((mx.zeros((3,)), 2), {}, ValueError, "x", "C)", "(3,)"),
        ((mx.zeros((3,)), 2), FIRST, ValueError, "x", "(N, C,", "(3,)"),
        ((mx.zeros((1,) * 5), 2), {}, ValueError, "x", "C)", "(1, 1, 1, 1, 1)"),
        ((SMALL, 2), {"dilation": 3}, ValueError, "kernel_size", "fit"),
        ((SMALL, (1, 4)), {}, ValueError, "kernel_size", "fit"),
        ((mx.zeros((1, 0, 3, 1)), 1), {}, ValueError, "kernel_size", "fit"),
        (
            (mx.zeros((1, 257, 257, 1), mx.int8), 257),
            *({"index_format": "window"}, ValueError, "index_format", "65536", "66049"),
        ),
        ((SMALL, 2), {"stream": mx.float32}, TypeError, "stream", "device", "float32"),
    ],
    "max_unpool1d": [
        ((LINE, LINE, 2), {},
         TypeError, "indices", "float32. Did the pool have return_indices=True?"),
        ((L32, LINE, 2), {}, TypeError, "indices", "float32", "Or are 'x' and 'indices' swapped?"),
        ((LINE.astype(mx.bool_), L32, 2), {}, TypeError, "x", "float32"),
        ((LINE, L32, 2), {"output_size": LINE},
         TypeError, "output_size", "Pass its shape: output_size=(1, "),
        ((LINE[:, :1], L32[:, :1], 2, 2, 1), {}, ValueError, "output_size", "empty"),
        ((LINE, L32, 2**30), {}, ValueError, "output_size", "2^31 - 1"),
        ((LINE[:, :1], L32[:, :1], 2, 5), {"output_size": 7},
         ValueError, "output_size", "(1 to 6)", "7."),
    ],
    "max_unpool2d": [
        (
            (mx.zeros((1, 2, 5, 6)), mx.zeros((1, 2, 5, 6), mx.int32), 2),
            {"output_size": (1, 2, 11, 13)},
            *(ValueError, "output_size"),
            "(1, 2, 11, 13). If the array is channels first, pass data_format=",
        ),
        ((*SAME, (6, 8)), {}, ValueError, "output_size", "'same'", "7 to 8, 7 to 8", "(6, 8)"),
        (SAME, {}, ValueError, "output_size", "padding='same'", "output_size=x.shape"),
        ((SQUARE, I32, None), {}, ValueError, "output_size", "kernel_size"),
        ((SQUARE, U8, None), {"output_size": 8}, ValueError, "kernel_size", "uint8"),
        ((SQUARE, I32, None), {"index_format": "window"},
         ValueError, "index_format", "'kernel_size' is"),
        ((SQUARE, I32, 257), {"index_format": "window"},
         ValueError, "index_format", "65536", "66049"),
        ((PAIR, I32, 2), {},
         TypeError, "x", "tuple", "unpool(values, indices) or unpool(*pool(x))."),
        ((SQUARE, I32, None, 2), {"output_size": 8}, ValueError, "stride", "kernel_size", "2"),
        ((SQUARE, I32, None, None, 1), {"output_size": 8},
         ValueError, "padding", "kernel_size", "1"),
        ((SQUARE, I32, None), {"output_size": 8, "dilation": 2},
         ValueError, "dilation", "kernel_size", "2"),
        ((SQUARE, I32, None, None, False), {"output_size": 8},
         ValueError, "padding", "0 if", "False"),
        ((SQUARE, I32, None), {"output_size": 8, "dilation": 1.0},
         ValueError, "dilation", "1 if", "1.0"),
        ((SQUARE, I32, None), {"output_size": (1, 8, 8, 2)},
         ValueError, "output_size", "2 integers"),
        ((SQUARE, I32, None), {"output_size": (3, 8, 8, 1)},
         ValueError, "output_size", "2 integers"),
        ((SQUARE[0, 0], I32[0, 0], 2), {}, ValueError, "x", "C)", "(4, 1)"),
        ((SQUARE[0], I32[0], 2), {"output_size": (1, 8, 8, 1)},
         ValueError, "output_size", "2 integers"),
    ],
    "adaptive_max_pool2d": [
        ((mx.zeros((4, 4, 4), mx.bool_), 2), {}, TypeError, "x", "bool"),
        ((mx.zeros((4, 4)), 2), {}, ValueError, "x", "(4, 4)"),
        ((mx.zeros((1, 0, 4, 2)), 2), {}, ValueError, "x", "(0, 4)"),
        ((SQUARE, 2**31 - 1), {}, ValueError, "output_size", "2^31"),
        ((SQUARE, (2**30, 2**30)), {}, ValueError, "output_size", "add up to less than 2^31"),
    ],
    "fractional_max_pool2d": [
        ((mx.zeros((1, 0, 4, 2)), 1), {"output_size": 1}, ValueError, "x", "(0, 4)"),
        ((SQUARE, (2, 9)), {"output_size": 2},
         ValueError, "kernel_size", "fit into", "(4, 4)", "(2, 9)"),
        ((SQUARE, 2), {"output_size": 4}, ValueError, "output_size", "(3, 3)"),
        ((SQUARE, 2), {"output_ratio": 0.1}, ValueError, "output_ratio", "(3, 3)"),
        ((SQUARE, 2), TAKE_3 | {"key": 3}, TypeError, "key", "int"),
        ((SQUARE, 2), TAKE_3 | {"key": mx.zeros((2,))}, TypeError, "key", "uint32"),
        ((SQUARE, 2), TAKE_3 | {"random_samples": [0.5]}, TypeError, "random_samples", "list"),
        ((SQUARE, 2), TAKE_3 | {"random_samples": I32}, TypeError, "random_samples", "int32"),
        ((SQUARE, 2), TAKE_3 | {"random_samples": SQUARE},
         ValueError, "random_samples", "(1, 1, 2)"),
        ((SQUARE, 2), TAKE_3 | {"key": mx.zeros((3,), mx.uint32)},
         ValueError, "key", "(2,)", "(3,)"),
        ((SQUARE, 2), TAKE_3 | SAMPLES | {"key": mx.random.key(0)}, ValueError, "key", "None"),
    ],
    "check_indices": [
        (([1], 8), {}, TypeError, "indices", "list"),
        ((LINE, 8), {}, TypeError, "indices", "float32"),
        ((L32, (8, 8, 8, 8)), {}, ValueError, "output_size"),
        ((L32, 0), {}, ValueError, "output_size"),
        ((L32, 8.0), {}, TypeError, "output_size"),
        ((L32, (2, 2, 2)), {}, ValueError, "output_size", "(1, 4, 1)"),
        ((U8, (6, 8)), {}, ValueError, "kernel_size", "be given for window indices"),
        ((U8, (7, 7), 3, 2, 1), {}, ValueError, "indices", "0 at (0, 0, 0, 0)"),  # which is padding
        ((L32, (8,)), {"stride": 2}, ValueError, "stride", "'kernel_size' is None"),
        ((L32, (8,)), {"index_format": "offset"}, ValueError, "index_format", "'flat' or 'window'"),
        ((L32, (8,)), {"index_format": "window"}, ValueError, "kernel_size", "be given for window"),
        ((I32, (9, 9), 257), {"index_format": "window"},
         ValueError, "index_format", "65536", "66049"),
        ((L32 + 4, (4,), 4, 1, "same"), {},
         ValueError, "indices", "with W 4 to 4 have this pooled size."),
    ],
    "convert_indices": [
        ((I32, "torch", "flat", (4, 4)), {}, ValueError, "source", "'torch'"),
        ((I32, "flat", "keras", (4, 4)), {}, ValueError, "target", "'keras'"),
        ((I32, "window", "flat", (4, 4), 2), {}, TypeError, "indices", "int32"),
        ((U8, "flat", "onnx", (4, 4)), {}, TypeError, "indices", "uint8"),
        ((U8, "window", "flat", (4, 4)), {}, ValueError, "kernel_size", "None"),
        ((I32, "flat", "window", (4, 4)), {}, ValueError, "kernel_size", "None"),
        ((I32, "flat", "window", (400, 400), 256), {}, ValueError, "kernel_size", "65536"),
        ((I32, "flat", "onnx", (4, 0)), {}, ValueError, "output_size", "(4, 0)"),
        ((I32, "flat", "onnx", (4, 4, 4, 4)), {}, ValueError, "output_size", "(4, 4, 4, 4)"),
        ((I32, "flat", "onnx", (4.0, 4)), {}, TypeError, "output_size", "(4.0, 4)"),
        ((I32, "flat", "onnx", 4), {},
         ValueError, "output_size", "a tuple with one integer per", "4."),
        ((I32[0], "flat", "onnx", (8, 8, 1)), {},
         ValueError, "output_size", "no batch, pass the spatial"),
        ((mx.array(3), "flat", "onnx", ()), {}, ValueError, "output_size", "()"),
        ((I32[:, :2], "flat", "onnx", (1, 2, 8, 2)), {},
         ValueError, "output_size", "channels_first"),
        ((I32, "flat", "onnx", (4, 4)), {"data_format": "NCHW"},
         ValueError, "data_format", "'NCHW'"),
        ((I32, "flat", "onnx", (4, 4)), TO_NCHW, ValueError, "target_data_format", "'NCHW'"),
        (([1], "flat", "onnx", (4, 4)), {}, TypeError, "indices", "list"),
        ((SQUARE, "flat", "onnx", (4, 4)), {}, TypeError, "indices", "float32"),
        ((OF_3, "flat", "onnx", (2**31 - 1,) * 2), {}, ValueError, "output_size", "2^63"),
        ((OF_2, "flat", "onnx", (2**21,) * 3), {}, ValueError, "output_size", "2^63"),
        ((OF_2[:1], "flat", "onnx", (2**21,) * 3), {}, ValueError, "output_size", "2^63"),
    ],
}  # fmt: skip
for value in NO_ARRAYS:
    CALLS["max_pool1d"].append(((value, 2), {}, TypeError, "x", type(value).__name__))
    CALLS["max_unpool2d"].append(
        ((SQUARE, value, 2), {}, TypeError, "indices", type(value).__name__)
    )
for dtype in (mx.float32, mx.float16, mx.bool_, mx.complex64):
    indices = SQUARE.astype(dtype)
    CALLS["max_unpool2d"].append(
        ((SQUARE, indices, 2), {}, TypeError, "indices", "integer", str(dtype))
    )
for device in (mx.gpu, mx.Device(mx.gpu)):
    if not mx.is_available(device):
        row = (SMALL, 2), {"stream": device}, ValueError, "stream", "available device", "gpu"
        CALLS["max_pool2d"].append(row)

PADDINGS = {
    ValueError: ["SAME", "", (1,), ((1, 2),), ((1, 2, 3), 1), ((), 1), ((1, 2), (1, 2), 0)],
    TypeError: [((1, "2"), 1), ((True, 1), 1), (((1, 2),) * 2, 1), None, 1.5],
}
PADDINGS[ValueError] += [((0, -1), 1), ((0, 3), 1), (1, (3, 0))]
for error, paddings in PADDINGS.items():
    for padding in paddings:
        CALLS["max_pool2d"].append(((SQUARE, 3, 2, padding), {}, error, "padding", repr(padding)))

OUTPUT_SIZES = {  # of windows 2x2/2 over 4x4: a part of the message, and sizes
    "2 integers": [(8,), [], (8, 8, 8, 8, 8)],
    "1 or more": [(0, 8), (-8, 8)],
    "7 to 9, 7 to 9": [6, (6, 8), (10, 8), (8, 100), (1, 8, 100, 1), (1, 1, 8, 8)],
    "indices of an adaptive or fractional pool pass kernel_size=None.$": [28],
    " If this is x.size, pass x.shape.$": [64],
    ". It is a size, not a factor: pass the shape": [2, (2, 2), (1, 2, 2, 1)],
    ". 'x' has its channels last, but this shape has them first.$": [(1, 1, 8, 8)],
    "be an integer or a tuple of integers": [(8.0, 8), (True, 8), "88"],
}
for part, sizes in OUTPUT_SIZES.items():
    error = TypeError if part.endswith("tuple of integers") else ValueError
    for size in sizes:
        row = (SQUARE, I32, 2), {"output_size": size}, error, "output_size", part
        CALLS["max_unpool2d"].append(row)


@pytest.mark.parametrize(("caller", "row"), [(c, row) for c, rows in CALLS.items() for row in rows])
def test_functions_name_what_is_wrong(caller, row):
    arguments, options, error, *parts = row
    fails(lambda: getattr(mlx_unpool, caller)(*arguments, **options), error, caller, *parts)


CIRCULAR: list = [2]
CIRCULAR.append(CIRCULAR)
TRACED = mx.vmap(lambda size: mlx_unpool.max_pool2d(SQUARE, (size, 2)))
LAYER_CALLS = [  # call, error, class, argument and a part of the message
    (lambda: MaxPool2d(2)(mx.zeros((3,))), ValueError, "MaxPool2d", "x", "(3,)"),
    (
        lambda: MaxUnpool2d(2)(SQUARE, I32, (6, 8)),
        *(ValueError, "MaxUnpool2d", "output_size", "(6, 8)"),
    ),
    (lambda: MaxUnpool2d(None, stride=2), ValueError, "MaxUnpool2d", "stride", "kernel_size"),
    (
        lambda: MaxUnpool2d(2, index_format="offset"),
        *(ValueError, "MaxUnpool2d", "index_format", "'offset'"),
    ),
    (lambda: MaxPool2d(2)(PAIR), TypeError, "MaxPool2d", "x", "tuple", "pass only the values on"),
    (lambda: MaxPool2d(CIRCULAR), TypeError, "MaxPool2d", "kernel_size", "integer"),
    (
        lambda: MaxUnpool2d(2)(SQUARE, I32, stream="cpu"),
        *(TypeError, "MaxUnpool2d", "stream", "'cpu'"),
    ),
    (
        lambda: TRACED(mx.array([2, 3])),
        *(TypeError, "max_pool2d", "kernel_size", "an unprintable tuple"),
    ),
]


def test_layers_name_what_is_wrong_in_a_call():
    for call, *parts in LAYER_CALLS:
        fails(call, *parts)
    for given in ({}, {"output_size": 3, "output_ratio": 0.5}):
        with pytest.raises(ValueError, match=r"^\[FractionalMaxPool2d\] exactly one of"):
            mlx_unpool.FractionalMaxPool2d(2, **given)
    for shape in ((1, 4, 4), (1, 4, 5, 1), (4, 4, 1), (1, 4, 4, 2), (1, 2, 8, 1)):
        same = "[max_unpool2d] 'x' and 'indices' must have the same shape "
        same += f"but got (1, 4, 4, 1) and {shape}."
        with pytest.raises(ValueError, match=re.escape(same)):
            mlx_unpool.max_unpool2d(SQUARE, mx.zeros(shape, mx.int32), 2)


UNPOOL, POOL = MaxUnpool2d(2), MaxPool2d(2)
THE_PAIR = "A pool with return_indices=True returns the pair (values, indices)"
TO_LAYER = f"{THE_PAIR}: unpool(*pool(x), output_size=x.shape).$"
TO_FUNCTION = f"{THE_PAIR}: max_unpool2d(*pool(x), ..., output_size=x.shape).$"
OTHERS = "'return_indices', 'data_format' by keyword.$"
NO_CALLS = [  # calls that do not fit the signature; the class or function, and parts of the message
    (lambda: UNPOOL(PAIR), "MaxUnpool2d", "'indices'", TO_LAYER),
    (lambda: UNPOOL(PAIR, output_size=8), "MaxUnpool2d", "'indices'", TO_LAYER),
    (lambda: UNPOOL(SQUARE), "MaxUnpool2d", "missing", "'indices'.$"),
    (
        lambda: UNPOOL(SQUARE, I32, 8, mx.cpu),
        *("MaxUnpool2d", "too many", "Pass 'stream' by keyword.$"),
    ),
    (lambda: mlx_unpool.max_unpool2d(PAIR, 2), "max_unpool2d", "'kernel_size'", TO_FUNCTION),
    (
        lambda: mlx_unpool.max_unpool2d(PAIR, kernel_size=2),
        *("max_unpool2d", "'indices'", TO_FUNCTION),
    ),
    (lambda: mlx_unpool.max_unpool1d(LINE, L32), "max_unpool1d", "missing", "'kernel_size'.$"),
    (lambda: mlx_unpool.max_unpool3d(), "max_unpool3d", "missing", "'x'.$"),
    (lambda: MaxPool2d(), "MaxPool2d", "missing", "'kernel_size'.$"),
    (lambda: MaxPool2d(pool_size=2), "MaxPool2d", "unexpected keyword argument 'pool_size'.$"),
    (lambda: MaxPool2d(2, 2, 0, 1, True), "MaxPool2d", "too many", "Pass 'dilation', 'ceil_mode',"),
    (lambda: MaxPool2d(2, kernel_size=2), "MaxPool2d", "multiple values", "'kernel_size'.$"),
    (lambda: mlx_unpool.MaxUnpool3d(2, 2, 0, 1), "MaxUnpool3d", "Pass 'dilation', 'index_format'"),
    (
        lambda: mlx_unpool.AdaptiveMaxPool2d(4, True),
        *("AdaptiveMaxPool2d", "too many", f"Pass {OTHERS}"),
    ),
    (
        lambda: mlx_unpool.FractionalMaxPool2d(2, 4),
        *("FractionalMaxPool2d", "Pass 'output_size'", OTHERS),
    ),
    (lambda: POOL(SQUARE, mx.cpu), "MaxPool2d", "too many", "Pass 'stream' by keyword.$"),
]


@pytest.mark.parametrize(
    ("call", "owner", "parts"), [(call, name, parts) for call, name, *parts in NO_CALLS]
)
def test_a_call_that_does_not_fit_the_signature_is_explained(call, owner, parts):
    with pytest.raises(TypeError) as raised:
        call()
    text = f"{raised.value}$"
    assert text.startswith(f"[{owner}] ")
    assert [part for part in parts if part not in text] == []
    assert raised.value.__context__ is None


SIZES = {  # calls, each with an array as one of its sizes
    "kernel_size": [
        lambda n: mlx_unpool.max_pool2d(SQUARE, n),
        lambda n: mlx_unpool.MaxUnpool2d(n),
    ],
    "stride": [lambda n: mlx_unpool.max_pool2d(SQUARE, 2, n), lambda n: MaxPool2d(2, n)],
    "padding": [lambda n: mlx_unpool.max_pool2d(SQUARE, 2, 2, n), lambda n: MaxUnpool2d(2, 2, n)],
    "dilation": [lambda n: mlx_unpool.max_pool2d(SQUARE, 2, dilation=n)],
    "output_size": [
        lambda n: mlx_unpool.max_unpool2d(SQUARE, I32, 2, output_size=n),
        lambda n: MaxUnpool2d(2)(SQUARE, I32, n),
        lambda n: mlx_unpool.adaptive_max_pool2d(SQUARE, n),
        lambda n: mlx_unpool.fractional_max_pool2d(SQUARE, 2, output_size=n),
        lambda n: mlx_unpool.check_indices(I32, n),
        lambda n: mlx_unpool.convert_indices(I32, "flat", "onnx", n),
    ],
}


@pytest.mark.parametrize("name", SIZES)
def test_an_array_of_sizes_is_refused_without_evaluation(name):
    for call in SIZES[name]:
        for sizes in (mx.array([2, 2]), np.array([2, 2])):
            # Inside mx.compile an evaluation would be another error.
            function = lambda x, call=call, sizes=sizes: call(
                x if isinstance(sizes, mx.array) else sizes
            )
            with pytest.raises(
                TypeError, match=rf"'{name}' must .* pass {name}=tuple\({name}.tolist\(\)\)"
            ):
                mx.compile(function)(mx.array([2, 2]))


WIDE, POOLED = mx.zeros((2, 3, 20, 20)), mx.zeros((1, 16, 4, 4))
POSITIONS, U = POOLED.astype(mx.int32), mx.zeros((1, 16, 2))
OTHER_LAYOUTS = [
    lambda **o: mlx_unpool.max_pool2d(WIDE, 7, **o),
    lambda **o: MaxPool2d(7, **o)(WIDE),
    lambda **o: mlx_unpool.max_unpool2d(POOLED, POSITIONS, 2, output_size=8, **o),
    lambda **o: mlx_unpool.fractional_max_pool2d(WIDE, 7, output_size=5, **o),
    lambda **o: mlx_unpool.fractional_max_pool2d(POOLED, 2, output_size=3, random_samples=U, **o),
    lambda **o: MaxUnpool2d(2, **o)(POOLED, POSITIONS, (1, 16, 8, 8)),
]
HINT = r" must .* but got .*\. If the array is channels {0}, pass data_format='channels_{0}'\.$"


def test_messages_about_shapes_suggest_the_layout_that_fits_and_no_other():
    first = {"data_format": "channels_first"}
    for call in OTHER_LAYOUTS:
        with pytest.raises(ValueError, match=HINT.format("first")):
            call()
        assert call(**first).shape[:2] in ((2, 3), (1, 16))
    with pytest.raises(ValueError, match=HINT.format("last")):
        mlx_unpool.max_pool2d(mx.zeros((2, 20, 20, 3)), 7, **first)
    for shape, options in (((2, 3, 3, 3), {}), ((2, 3, 3, 3), first), ((2, 2, 2, 20, 20, 20), {})):
        with pytest.raises(ValueError, match="must") as caught:
            mlx_unpool.max_pool2d(mx.zeros(shape), 7, **options)
        assert "If the array" not in str(caught.value)


SIZED = (
    ("adaptive_max_pool2d", SQUARE),
    ("check_indices", I32),
    ("convert_indices", I32, "flat", "onnx"),
)
SIZED += tuple(("max_unpool2d", SQUARE, I32, kernel, None, 0) for kernel in (2, None))


@pytest.mark.parametrize(
    "value", [2**31, 2**63, 2**70, 10**5000], ids=["2^31", "2^63", "2^70", "10^5000"]
)
def test_integers_that_no_axis_can_hold_are_refused(value):
    for kind, name in itertools.product(
        ("MaxPool1d", "MaxUnpool2d"), (*WITHOUT_PADDING, "padding")
    ):
        call = lambda k=kind, n=name: getattr(mlx_unpool, k)(**{"kernel_size": 3, n: value})
        fails(call, ValueError, kind, name, "2^31 - 1")
    for (caller, *given), size in itertools.product(SIZED, (value, (value, 8), (8, value), -value)):
        call = lambda c=caller, g=(*given, size): getattr(mlx_unpool, c)(*g)
        fails(call, ValueError, caller, "output_size")


def unpool(
    rank: int, shape: tuple[int, ...], window: int | None, size: int | None = None
) -> mx.array:
    indices = huge(shape, mx.int32)
    return getattr(mlx_unpool, f"max_unpool{rank}d")(huge(shape), indices, window, output_size=size)


PLANE, HALF = (1, 2**16, 2**16, 1), (1, 2**15, 2**15, 1)
PADDED = (1, 46340, 46340, 1)
LINES = [huge((1, 2**30 - 1, 1), mx.uint8)] * 2
TOO_LARGE = [  # the argument, and a call
    ("x", lambda: mlx_unpool.max_pool2d(huge(PLANE), 3, 2, 1)),
    ("x", lambda: mlx_unpool.max_pool2d(huge((64, 2**13, 2**13, 1)), 2)),
    ("output_size", lambda: unpool(2, HALF, 2)),
    ("output_size", lambda: unpool(1, (1, 2**15, 2**15), 2)),  # with its extra position
    ("output_size", lambda: unpool(1, (1, 1, 1), None, 2**31 - 1)),
    ("x", lambda: unpool(2, PLANE, None, 4)),  # more values than positions
    ("x", lambda: mlx_unpool.adaptive_max_pool2d(huge(PLANE), 7)),
    ("output_size", lambda: mlx_unpool.adaptive_max_pool2d(SQUARE, (2**28, 8))),
    ("x", lambda: mlx_unpool.fractional_max_pool2d(huge(PLANE), 2, output_ratio=0.5)),
    # A copy with padding, or an array between two axes
    ("x", lambda: mlx_unpool.max_pool1d(huge((1, 2**31 - 2, 1)), 3, 1, 1)),
    ("x", lambda: mlx_unpool.max_pool3d(huge((1, 1290, 1290, 1290, 1)), 3, 1, 1)),
    ("x", lambda: mlx_unpool.adaptive_max_pool2d(huge((1, 2**20, 1, 1)), (1, 2**12))),
    ("output_size", lambda: mlx_unpool.max_unpool1d(*LINES, 3, 2, 1, output_size=2**31 - 3)),
    ("x", lambda: mlx_unpool.max_pool1d(huge((1, 2**31 - 3, 1)), 2, 1, 4095, dilation=4096)),
    ("x", lambda: mx.vmap(lambda x: mlx_unpool.max_pool1d(x, 2))(huge((2**15, 2**16, 4, 1)))),
    (
        "x",
        lambda: mx.grad(lambda x: mlx_unpool.max_pool2d(x, 3, 2, 1).sum())(
            huge(PADDED, mx.float16)
        ),
    ),
]
# The padded copy has more than 2^31 elements, but channels are only ever copied together.
LARGE = [
    lambda: mlx_unpool.max_pool2d(huge((1300, 112, 112, 128)), 3, 1, 1, return_indices=True),
    lambda: mlx_unpool.max_pool2d(huge((1300, 112, 112, 128)), 3, 2, 1),
    lambda: mlx_unpool.max_pool1d(huge((1, 2**31 - 2, 1)), 3, 2),
]


def test_arrays_just_below_the_limit_are_accepted():
    with mx.stream(mx.cpu):
        for call in LARGE:
            call()


@pytest.mark.parametrize(("argument", "call"), TOO_LARGE)
def test_arrays_of_2_to_the_31_elements_are_refused_on_the_cpu(argument, call):
    message = (
        r"must (give arrays of fewer than 2\^31 elements on the|"
        r"have fewer than 2\^31 values per plane)"
    )
    with mx.stream(mx.cpu), pytest.raises(ValueError, match=f"'{argument}' {message}"):
        call()


@pytest.mark.parametrize("name", ["max_pool1d", "adaptive_max_pool1d", "fractional_max_pool2d"])
def test_every_plane_has_one_extra_position(name):
    size = (255, 257) if name.endswith("2d") else (255 * 257,)
    options = {"output_size": 3} if name.startswith("fractional") else {}
    pool = lambda x: getattr(mlx_unpool, name)(x, 3, **options)
    with mx.stream(mx.cpu):
        assert unpool(1, (1, 2**15, 2**15 - 1), 2).shape == (1, 2**16, 2**15 - 1)
        pool(huge((1, *size, 2**15 - 1)))
        with pytest.raises(ValueError, match=r"'x' must give arrays of fewer than 2\^31 elements"):
            pool(huge((1, *size, 2**15)))
        mx.vmap(pool)(huge((2, 1, *size, 2**14 - 1)))
        with pytest.raises(ValueError, match=r"fewer than 2\^31 .* in 2 examples of mx.vmap"):
            mx.vmap(pool)(huge((2, 1, *size, 2**14)))
