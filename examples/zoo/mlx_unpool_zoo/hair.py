"""MediaPipe's hair segmentation (Tkachenka and others, 2019), with 0.18 million parameters.

The network is a smaller ENet. Every block adds a narrow branch of convolutions to its input. A
``Down`` block also halves the size: it pools the input with indices, with which an ``Up`` block of
the decoder unpools. Two stages of the decoder also get the features of the encoder.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from mlx_unpool import MaxPool2d, MaxUnpool2d

from .about import CITATIONS, Facts, Size, divided_by_255
from .inputs import classes_of, interpolated
from .model import Model

SIDE = 512  # of the inputs of the published weights, whatever the shape of the photograph
STEP = 200  # the largest distance of the squares in which a wide picture is segmented, in pixels
WIDEST = 8  # the highest ratio of the sides of a picture in squares
SMALLEST = 32  # its shorter side, in pixels
HAIR: list[Any] = [
    {"name": "background", "colour": [0, 0, 0]},
    {"name": "hair", "colour": [170, 70, 200]},
]
PARTS = {"Kernel": "weight", "Bias": "bias", "Alpha": "weight"}  # TensorFlow's names of parameters


class Doubling(nn.ConvTranspose2d):
    """A transposed convolution that doubles height and width.

    It is that of TensorFlow with the padding "same".
    """

    def __call__(self, x: mx.array) -> mx.array:
        channels, height, width, inputs = self.weight.shape
        if (height, width) != (2, 2):
            return super().__call__(x)[:, : 2 * x.shape[1], : 2 * x.shape[2]]
        n, rows, columns, _ = x.shape  # without overlap it is a product, which is faster on a CPU
        y = (x @ self.weight.reshape(-1, inputs).T).reshape(n, rows, columns, channels, 2, 2)
        return y.transpose(0, 1, 4, 2, 5, 3).reshape(n, 2 * rows, 2 * columns, channels) + self.bias


# The layers in the middle of a branch. With groups=channels each channel is filtered on its own.
Middle = Callable[[int], list[nn.Module]]


def separable(channels: int) -> list[nn.Module]:
    first, last = (nn.Conv2d(channels, channels, 3, padding=1, groups=channels) for _ in range(2))
    return [first, nn.Conv2d(channels, channels, 1), nn.PReLU(channels), last, nn.PReLU(channels)]


def separable_5x5(channels: int) -> list[nn.Module]:
    first = nn.Conv2d(channels, channels, 5, padding=2, groups=channels)
    return [first, nn.Conv2d(channels, channels, 1), nn.PReLU(channels)]


def dilated(dilation: int) -> Middle:
    return lambda n: [nn.Conv2d(n, n, 3, padding=dilation, dilation=dilation), nn.PReLU(n)]


def transposed(channels: int) -> list[nn.Module]:
    return [Doubling(channels, channels, 3, stride=2), nn.PReLU(channels)]


class Block(nn.Module):
    """The layers of a block: a branch of ``narrow`` channels and, if necessary, a convolution."""

    def __init__(
        self, inputs: int, narrow: int, outputs: int, middle: Middle, size: int = 1
    ) -> None:
        super().__init__()
        first, last = nn.Conv2d(inputs, narrow, size, stride=size), nn.Conv2d(narrow, outputs, 1)
        self.branch = nn.Sequential(first, nn.PReLU(narrow), *middle(narrow), last)
        self.main = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)
        self.activation = nn.PReLU(outputs)


class Bottleneck(Block):
    """A block that keeps the size."""

    def __call__(self, x: mx.array) -> mx.array:
        return self.activation(self.branch(x) + self.main(x))


class Down(Block):
    """A block that halves the size: the branch by a stride, the input by pooling with indices."""

    def __init__(self, inputs: int, narrow: int, outputs: int) -> None:
        super().__init__(inputs, narrow, outputs, separable, size=2)
        self.pool = MaxPool2d(2, return_indices=True, index_format="window")

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:
        pooled, indices = self.pool(x)
        return self.activation(self.branch(x) + self.main(pooled)), indices


class Up(Block):
    """A block that doubles the size; the input is unpooled with the indices of a ``Down``."""

    def __init__(self, inputs: int, narrow: int, outputs: int) -> None:
        super().__init__(inputs, narrow, outputs, transposed)
        self.main = nn.Conv2d(inputs, outputs, 1)
        self.unpool = MaxUnpool2d(2)

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:
        return self.activation(self.branch(x) + self.unpool(self.main(x), indices))


class HairSegmenter(Model):
    """MediaPipe's hair segmentation, for photographs and films: three pooling and unpooling layers.

    ``HairSegmenter()(x)`` returns class scores (N, H, W, 2) of inputs (N, H, W, 4), where H and W
    are multiples of 32. Channels are red, green and blue from 0 to 1, and the mask of the previous
    frame of a film, which is 0 for a photograph.

    The published weights, ``from_pretrained("hair")``, are for 512 x 512: ``mask``, ``masks`` and
    ``predict`` stretch images to this size as MediaPipe does, while ``preprocess`` keeps the size.
    A model that was trained further, with ``about.input["side"]`` or other classes, does not
    stretch them, and has no ``mask``.

    Args:
        num_classes: Number of classes.

    Example:
        >>> model = zoo.HairSegmenter()  # with weights: zoo.from_pretrained("hair")
        >>> image = np.zeros((60, 80, 3), np.uint8)  # or a picture of Pillow
        >>> model.predict(image).shape
        (60, 80)
    """

    model_type: ClassVar[str] = "hair"
    facts: ClassVar[Facts] = Facts(
        paper=(
            "Tkachenka et al., Real-time hair segmentation on mobile GPUs, arXiv:1907.06740 (2019)"
        ),
        citation=CITATIONS["tkachenka2019hair"],
        normalisation=divided_by_255(4),
        multiple_of=32,
        classes={2: HAIR},
    )

    def __init__(self, num_classes: Size = 2) -> None:
        super().__init__(4, picture_channels=3, multiple=32)
        # Modules and their layers are in the order in which TensorFlow numbers them.
        first, second = nn.Conv2d(4, 8, 2, stride=2), nn.Conv2d(8, 32, 2, stride=2)
        self.stem = nn.Sequential(first, nn.PReLU(8), second, nn.PReLU(32))
        context = (separable, dilated(2), separable_5x5, dilated(4), separable, dilated(8))
        self.encoder = [
            [Down(32, 16, 64), *(Bottleneck(64, 16, 64, separable) for _ in range(2))],
            [Down(64, 32, 128), *(Bottleneck(128, 16, 128, separable) for _ in range(4))],
            [Down(128, 16, 128), *(Bottleneck(128, 8, 128, middle) for middle in 2 * context)],
        ]
        self.decoder = [
            [Bottleneck(128, 4, 128, dilated(1)), Up(128, 8, 128)],
            [Bottleneck(256, 8, 128, dilated(1)), Up(128, 8, 64)],
            [Bottleneck(128, 4, 64, dilated(1)), Up(64, 4, 32), Bottleneck(32, 4, 32, dilated(1))],
        ]
        self.head = nn.Sequential(
            Doubling(32, 8, 2, 2), nn.PReLU(8), Doubling(8, num_classes, 2, 2)
        )

    def __call__(self, x: mx.array) -> mx.array:
        """Class scores (N, H, W, num_classes) of inputs (N, H, W, 4)."""
        self.check_input(x)
        x, kept = self.stem(x), []
        for down, *blocks in self.encoder:
            x, indices = down(x)
            kept.append((x, indices))
            for block in blocks:
                x = block(x)
        for number, (first, up, *rest) in enumerate(self.decoder):
            features, indices = kept.pop()
            x = first(mx.concatenate([x, features], axis=-1) if number else x)
            x = up(x, indices)
            for block in rest:
                x = block(x)
        return self.head(x)

    def mask(self, image: Any, *, squares: bool = False) -> np.ndarray:
        """How likely each pixel of an image is hair: (H, W), float32, 0 to 1; see ``masks``."""
        return next(self.masks([image], squares=squares))

    def masks(self, frames: Iterable[Any], *, squares: bool = False) -> Iterator[np.ndarray]:
        """The ``mask`` of each frame of a film; the network gets the mask of the frame before.

        Args:
            frames: The images, in the order of time, as for ``predict``: Pillow images or arrays.
                They are read one after the other.
            squares: If True, and the sides of an image are further apart than 4:3, the network gets
                overlapping squares along the longer side instead of the stretched image, which
                MediaPipe passes. Their masks are averaged with weights that fall to 0 at the edges
                of each square. It takes as many times longer as there are squares: three for 16:9.

        Raises:
            ValueError: If the model was trained further, or an image to be cut into squares is less
                than 32 pixels high or wide, or has a side more than 8 times as long as the other.
        """
        if self._is_trained_further():
            raise ValueError(
                "[HairSegmenter] masks need the published network, but this model was trained on "
                "other images: use predict or probabilities."
            )
        before: list[mx.array] = []
        for frame in frames:
            mask, before = self._next_mask(frame, before, squares)
            yield mask

    def _next_mask(
        self, frame: Any, before: list[mx.array], squares: bool
    ) -> tuple[np.ndarray, list[mx.array]]:
        """The mask of a frame, and ``before`` of the next call, a list that is empty at first."""
        (picture, *others), _ = self._batch(frame)
        if others:
            raise ValueError(f"[HairSegmenter] a mask is for one image, but got {1 + len(others)}.")
        size, parts = squares_of(*picture.shape[:2] if squares else (SIDE, SIDE))
        inputs, mask, found = stretched(picture, size), np.zeros(size, np.float32), []
        if len(before) != len(parts):
            before = [mx.zeros((SIDE, SIDE))] * len(parts)
        for (part, weights), previous in zip(parts, before):
            x = self._normalised(inputs[part][None])
            x[..., 3] = previous
            found.append(mx.softmax(self(x)[0].astype(mx.float32), axis=-1)[..., 1])
            mask[part] += weights * np.array(found[-1])
        return interpolated(mask, picture.shape), found

    def _is_trained_further(self) -> bool:
        """Whether the model was trained on images of other sizes than the published network."""
        return bool(self.about.input.get("side")) or self.config["num_classes"] != 2

    def _for_each(self, made_of: Any, images: Any, args: Any, kwargs: Any) -> np.ndarray:
        if self._is_trained_further():
            return super()._for_each(made_of, images, args, kwargs)
        pictures, single = self._batch(images)
        masks = np.stack([self.mask(picture) for picture in pictures])
        masks = masks[0] if single else masks
        return (
            (masks > 0.5).astype(np.uint8)
            if made_of is classes_of
            else np.stack([1 - masks, masks], -1)
        )

    def _normalised(self, values: np.ndarray) -> mx.array:
        """A batch of pictures (0 to 1), padded to multiples of 32, with an empty previous mask."""
        return super()._normalised(
            np.concatenate([values, np.zeros_like(values[..., :1])], axis=-1)
        )

    # The published file.

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {"num_classes": state["head.2.weight"].shape[1]}

    @classmethod
    def canonical(cls, state: dict[str, Any]) -> dict[str, Any]:
        """Rename the arrays of the TFLite file and bring them to PyTorch's layout.

        TensorFlow numbers the layers of each kind: ``conv2d``, ``conv2d_1``, and so on.
        """
        if "conv2d/Kernel" not in state:
            return state
        model, state, count = cls(), dict(state), Counter[str]()
        layers, parameters = dict(model.named_modules()), dict(tree_flatten(model.parameters()))
        for name in dict.fromkeys(parameter.rpartition(".")[0] for parameter in parameters):
            kind, axes = tensorflow_kind(layers[name])
            prefix = f"{kind}_{count[kind]}" if count[kind] else kind
            count[kind] += 1
            for part, ours in PARTS.items():
                if (key := f"{prefix}/{part}") in state:
                    value = state.pop(key)
                    value = value.transpose(axes) if value.ndim == len(axes) else value.reshape(-1)
                    state[cls.pytorch_names(f"{name}.{ours}")[0]] = value
        return state


def tensorflow_kind(layer: nn.Module) -> tuple[str, tuple[int, ...]]:
    """TensorFlow's name of a layer, and its kernel's axes (output, H, W, input) in PyTorch's order.

    In a depthwise kernel (1, H, W, channels) the order of the first and the last axis is reversed.
    """
    if isinstance(layer, nn.PReLU):
        return "p_re_lu", ()
    if isinstance(layer, nn.ConvTranspose2d):
        return "conv2d_transpose", (3, 0, 1, 2)
    return ("depthwise_conv2d", (3, 0, 1, 2)) if layer.groups > 1 else ("conv2d", (0, 3, 1, 2))


# The squares of wide and tall pictures.

Square = tuple[Any, np.ndarray]  # the place of a square, and the weights of its pixels in the mask


def squares_of(height: int, width: int) -> tuple[tuple[int, int], list[Square]]:
    """The size to which a picture is stretched, and the squares of 512 x 512 pixels that cover it.

    Up to 4:3 there is one square. Otherwise the size has the proportions of the picture, and
    neighbouring squares overlap. The weights of a square fall linearly to 0 at its edges, and those
    of all add up to 1.

    Raises:
        ValueError: If there would be several squares of a picture that is very small or narrow.
    """
    ratio = max(height, width) / min(height, width)
    length = SIDE
    if 3 * ratio > 4:
        check_sides(height, width)
        length = math.floor(SIDE * ratio + 0.5)
    count = math.ceil((length - SIDE) / STEP) + 1
    starts = np.linspace(0, length - SIDE, count).round().astype(int)
    slope = SIDE / 2 - np.abs(np.arange(SIDE) + 0.5 - SIDE / 2)
    total = np.zeros(length)
    for start in starts:
        total[start : start + SIDE] += slope
    slices = [slice(start, start + SIDE) for start in starts]
    weights = [(slope / total[part]).astype(np.float32) for part in slices]
    if width > height:
        return (SIDE, length), [(np.s_[:, part], weight) for part, weight in zip(slices, weights)]
    return (length, SIDE), [(np.s_[part], weight[:, None]) for part, weight in zip(slices, weights)]


def check_sides(height: int, width: int) -> None:
    """Raise ValueError if a picture is too small or too narrow to find hair in squares of it."""
    shorter, longer = sorted([height, width])
    if shorter < SMALLEST or longer > WIDEST * shorter:
        raise ValueError(
            "[HairSegmenter] an image that is wider or higher than 4:3 must have "
            f"{SMALLEST} pixels or more on each side, and at most {WIDEST} times as many on one "
            f"as on the other, but got {width} x {height}: crop it."
        )


# Sizes, as OpenCV changes them for MediaPipe.


def stretched(picture: np.ndarray, size: tuple[int, int] = (SIDE, SIDE)) -> np.ndarray:
    """A picture (H, W, 3), uint8 or 0 to 1, stretched to a size without padding, as uint8.

    If both sides become smaller, each pixel is the mean of the area that it covers (INTER_AREA).
    Otherwise it is interpolated linearly (INTER_LINEAR), with OpenCV's integers, which truncate.
    """
    if picture.dtype != np.uint8:
        picture = np.rint(picture * 255).astype(np.uint8)
    (height, width), (rows, columns) = picture.shape[:2], size
    if (height, width) == size:
        return picture
    if height > rows and width > columns:
        means = area_means(area_means(picture, rows).swapaxes(0, 1), columns).swapaxes(0, 1)
        return np.floor(means + 0.5).astype(np.uint8)
    (above, below, down), (left, right, across) = (
        neighbours(height, rows),
        neighbours(width, columns),
    )
    across, found = across[:, None], np.empty((rows, columns, 3), np.uint8)
    for number, share in enumerate(down):  # row by row, which saves memory
        pair = picture[[above[number], below[number]]]
        first, second = (pair[:, left] * (2048 - across) + pair[:, right] * across) >> 4
        found[number] = ((first * (2048 - share) >> 16) + (second * share >> 16) + 2) >> 2
    return found


def neighbours(length: int, wanted: int) -> tuple[np.ndarray, ...]:
    """The two nearest pixels of each new position, and 2048 times the share of the second one."""
    positions = ((np.arange(wanted) + 0.5) * (length / wanted) - 0.5).astype(np.float32)
    first = np.floor(positions).astype(np.int32)
    share = np.rint((positions - first) * 2048).astype(np.int32)
    return first.clip(0, length - 1), (first + 1).clip(0, length - 1), share


def area_means(rows: np.ndarray, wanted: int) -> np.ndarray:
    """The means of rows (L, ...), each over L / wanted rows; the outer two may be partial."""
    step, found = len(rows) / wanted, np.empty((wanted, *rows.shape[1:]), np.float32)
    for number in range(wanted):
        begin, end = number * step, (number + 1) * step
        covered = np.arange(math.floor(begin), min(math.ceil(end), len(rows)))
        shares = (np.minimum(covered + 1, end) - np.maximum(covered, begin)) / step
        found[number] = np.tensordot(shares.astype(np.float32), rows[covered].astype(np.float32), 1)
    return found
