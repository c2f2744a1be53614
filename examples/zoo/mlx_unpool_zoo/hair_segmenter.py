"""MediaPipe's hair segmentation (Tkachenka and others, 2019): finds hair with 0.18 million parameters.

The network is a smaller ENet. A block is a narrow branch of convolutions that is added to a main branch. If
it halves the size, the main branch pools with indices; if it doubles the size, the main branch unpools with
these indices. Two stages of the decoder also get the features of the encoder.

The fourth channel of the input is the mask of the previous frame of a video, and 0 for a photograph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from mlx_unpool import MaxPool2d, MaxUnpool2d

from .model import CITATIONS, About, Model, Size

SIDE = 512  # of the inputs of the published weights, whatever the shape of the photograph
HAIR: list[Any] = [{"name": "background", "colour": [0, 0, 0]}, {"name": "hair", "colour": [170, 70, 200]}]
# The file of MediaPipe's page "Models and model cards", and its checksum in third_party/external_files.bzl.
URL = "https://storage.googleapis.com/mediapipe-assets/hair_segmentation.tflite"
SHA256 = "d2c940c4fd80edeaf38f5d7387d1b4235ee320ed120080df67c663e749e77633"


class Doubling(nn.ConvTranspose2d):
    """A transposed convolution that doubles height and width, as TensorFlow's with the padding "same"."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int) -> None:
        super().__init__(inputs, outputs, kernel_size, stride=2)

    def __call__(self, x: mx.array) -> mx.array:
        return super().__call__(x)[:, : 2 * x.shape[1], : 2 * x.shape[2]]


def depthwise(channels: int, kernel_size: int) -> nn.Module:
    """A convolution of each channel on its own."""
    return nn.Conv2d(channels, channels, kernel_size, padding=kernel_size // 2, groups=channels)


def middle(kind: Any, channels: int) -> list[nn.Module]:
    """The layers in the middle of a branch: ``"separable"``, ``"large"`` (5 x 5), or a dilation."""
    if kind == "separable":
        between = [nn.Conv2d(channels, channels, 1), nn.PReLU(channels)]
        return [depthwise(channels, 3), *between, depthwise(channels, 3), nn.PReLU(channels)]
    if kind == "large":
        return [depthwise(channels, 5), nn.Conv2d(channels, channels, 1), nn.PReLU(channels)]
    return [nn.Conv2d(channels, channels, 3, padding=kind, dilation=kind), nn.PReLU(channels)]


class Bottleneck(nn.Module):
    """A narrow branch of convolutions plus the input, which a convolution brings to ``outputs`` channels."""

    def __init__(self, inputs: int, outputs: int, narrow: int, kind: str | int = "separable") -> None:
        super().__init__()
        first = [nn.Conv2d(inputs, narrow, 1), nn.PReLU(narrow)]
        self.branch = nn.Sequential(*first, *middle(kind, narrow), nn.Conv2d(narrow, outputs, 1))
        if inputs != outputs:
            self.main = nn.Conv2d(inputs, outputs, 1)
        self.activation = nn.PReLU(outputs)

    def __call__(self, x: mx.array) -> mx.array:
        return self.activation(self.branch(x) + (self.main(x) if "main" in self else x))


class Down(nn.Module):
    """A bottleneck that halves the size; its main branch pools with indices."""

    def __init__(self, inputs: int, outputs: int, narrow: int) -> None:
        super().__init__()
        first = [nn.Conv2d(inputs, narrow, 2, stride=2), nn.PReLU(narrow)]
        self.branch = nn.Sequential(*first, *middle("separable", narrow), nn.Conv2d(narrow, outputs, 1))
        if inputs != outputs:
            self.main = nn.Conv2d(inputs, outputs, 1)
        self.activation = nn.PReLU(outputs)
        self.pool = MaxPool2d(2, return_indices=True, index_format="window")

    def __call__(self, x: mx.array) -> tuple[mx.array, mx.array]:
        pooled, indices = self.pool(x)
        pooled = self.main(pooled) if "main" in self else pooled
        return self.activation(self.branch(x) + pooled), indices


class Up(nn.Module):
    """A bottleneck that doubles the size; its main branch unpools with the indices of a :class:`Down`."""

    def __init__(self, inputs: int, outputs: int, narrow: int) -> None:
        super().__init__()
        first = [nn.Conv2d(inputs, narrow, 1), nn.PReLU(narrow)]
        doubled = [Doubling(narrow, narrow, 3), nn.PReLU(narrow)]
        self.branch = nn.Sequential(*first, *doubled, nn.Conv2d(narrow, outputs, 1))
        self.main = nn.Conv2d(inputs, outputs, 1)
        self.activation = nn.PReLU(outputs)
        self.unpool = MaxUnpool2d(2)

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:
        branch = self.branch(x)
        return self.activation(branch + self.unpool(self.main(x), indices, output_size=branch.shape))


class HairSegmenter(Model):
    """MediaPipe's hair segmentation: bottlenecks, three pooling and three unpooling layers, for photographs.

    ``HairSegmenter()(x)`` returns class scores (N, H, W, 2) of inputs (N, H, W, 4): colours from 0 to 1 and
    the mask of the previous frame. H and W are multiples of 32; the published weights are for 512 x 512.

    Args:
        num_classes: Number of classes.
    """

    model_type: ClassVar[str] = "hair_segmenter"
    citation: ClassVar[str] = CITATIONS["tkachenka2019hair"]
    default_about: ClassVar[About] = About(
        paper="Tkachenka and others, Real-time hair segmentation and recoloring on mobile GPUs, "
        "arXiv:1907.06740 (2019)",
        input={"planes": 4, "size": "512 x 512", "multiple_of": 32, "normalisation": None},
        base_model="google-ai-edge/mediapipe",
    )
    class_tables: ClassVar[Mapping[int, list[Any]]] = {2: HAIR}

    def __init__(self, num_classes: Size = 2) -> None:
        super().__init__()
        self.takes(4, pictures=3)
        # Modules and their layers are in the order in which TensorFlow numbers them.
        self.stem = nn.Sequential(
            *(nn.Conv2d(4, 8, 2, stride=2), nn.PReLU(8), nn.Conv2d(8, 32, 2, stride=2), nn.PReLU(32))
        )
        self.stage1 = [Down(32, 64, 16), *(Bottleneck(64, 64, 16) for _ in range(2))]
        self.stage2 = [Down(64, 128, 32), *(Bottleneck(128, 128, 16) for _ in range(4))]
        context = ("separable", 2, "large", 4, "separable", 8, "separable", 2, "large", 4, "separable", 8)
        self.stage3 = [Down(128, 128, 16), *(Bottleneck(128, 128, 8, kind) for kind in context)]
        self.stage4 = [Bottleneck(128, 128, 4, 1), Up(128, 128, 8)]
        self.stage5 = [Bottleneck(256, 128, 8, 1), Up(128, 64, 8)]
        self.stage6 = [Bottleneck(128, 64, 4, 1), Up(64, 32, 4), Bottleneck(32, 32, 4, 1)]
        self.head = nn.Sequential(Doubling(32, 8, 2), nn.PReLU(8), Doubling(8, num_classes, 2))

    def __call__(self, x: mx.array) -> mx.array:
        """Class scores (N, H, W, num_classes) of inputs (N, H, W, 4)."""
        self.check_input(x)
        if x.shape[1] % 32 or x.shape[2] % 32:
            raise ValueError(
                "[HairSegmenter] inputs must be (N, H, W, 4) with H and W multiples of 32, but got "
                f"{x.shape}."
            )
        x, indices, features = self.stem(x), [], []
        for stage in (self.stage1, self.stage2, self.stage3):
            x, found = stage[0](x)
            indices.append(found)
            features.append(x)
            for block in stage[1:]:
                x = block(x)
        x = self.stage4[1](self.stage4[0](x), indices[2])
        x = self.stage5[0](mx.concatenate([x, features[1]], axis=-1))
        x = self.stage6[0](mx.concatenate([self.stage5[1](x, indices[1]), features[0]], axis=-1))
        return self.head(self.stage6[2](self.stage6[1](x, indices[0])))

    # Masks.

    def mask(self, image: Any) -> np.ndarray:
        """How likely each pixel of an image is hair: (H, W), float32, 0 to 1. Images as for ``predict``."""
        return next(self.masks([image]))

    def masks(self, frames: Iterable[Any]) -> Iterator[np.ndarray]:
        """The :meth:`mask` of each frame of a video; the network gets the mask of the frame before."""
        previous = None
        for frame in frames:
            values = self._batch(frame)[0]
            scores = self(self._normalised(values, previous))[0].astype(mx.float32)
            previous = np.array(mx.softmax(scores, axis=-1)[..., 1])
            yield interpolated(previous, values.shape[1:3])

    def predict(self, images: Any) -> np.ndarray:
        """1 for the pixels of images that are hair, and 0 for others. Images as for :meth:`preprocess`.

        Returns:
            A NumPy array of integers, (H, W) for one image and (N, H, W) for several.
        """
        values, single = self._batch(images)
        found = [(self.mask(image) > 0.5).astype(np.uint8) for image in values]
        return found[0] if single else np.stack(found)

    def _normalised(self, values: np.ndarray, previous: np.ndarray | None = None) -> mx.array:
        """A batch stretched to 512 x 512, with the mask of the frame before."""
        scale = 1 if values.dtype == np.uint8 else 255
        colours = np.stack([stretched(image * scale) / 255 for image in values])
        before = np.zeros(colours.shape[:3]) if previous is None else previous[None]
        x = np.concatenate([colours, before[..., None]], axis=-1).astype(np.float32)
        return mx.array(x).astype(self.stem.layers[0].weight.dtype)

    # Weights.

    @classmethod
    def download(cls, url: str = URL, sha256: str = SHA256) -> HairSegmenter:
        """The model with Google's weights, which are downloaded (0.8 MB) at the first call and then cached.

        Raises:
            OSError: If the download fails.
            ValueError: If the file does not have the checksum.
        """
        import pooch

        from .tflite import read_tflite

        path = pooch.retrieve(url, f"sha256:{sha256}", path=pooch.os_cache("mlx_unpool"), fname="hair.tflite")
        model = cls.from_pytorch(read_tflite(path))
        model.about.source, model.about.licence = url, "apache-2.0"
        model.about.licence_link = "https://www.apache.org/licenses/LICENSE-2.0"
        return model

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {"num_classes": state["head.2.weight"].shape[1]}

    @classmethod
    def canonical(cls, state: dict[str, Any]) -> dict[str, Any]:
        """Rename the arrays of a TFLite file, and bring them to PyTorch's layout.

        TensorFlow numbers the layers of each kind: ``conv2d``, ``conv2d_1``, and so on.
        """
        if "conv2d/Kernel" not in state:
            return state
        model, state, numbers = cls(), dict(state), Counter[str]()
        layers = dict(model.named_modules())
        for layer in dict.fromkeys(name.rpartition(".")[0] for name, _ in flat(model)):
            kind, parts, axes = described(layers[layer])
            number = f"_{numbers[kind]}" if numbers[kind] else ""
            numbers[kind] += 1
            for part, name in parts.items():
                if (key := f"{kind}{number}/{part}") in state:
                    value = state.pop(key)
                    value = value.transpose(axes) if value.ndim == 4 else value.reshape(-1)
                    state[f"{cls.pytorch_names(layer + '.')[0]}{name}"] = value
        return state

    @staticmethod
    def pytorch_names(name: str) -> tuple[str, ...]:
        """A name without the ``layers`` between a Sequential and its layers, which PyTorch does not have."""
        return (name.replace(".layers.", "."),)


def flat(model: nn.Module) -> list[tuple[str, mx.array]]:
    """The parameters of a model in the order of its modules."""
    found: Any = tree_flatten(model.parameters())
    return found


def described(layer: nn.Module) -> tuple[str, dict[str, str], tuple[int, ...]]:
    """TensorFlow's name of a layer, of its parameters, and the axes of its kernel in PyTorch's order."""
    if isinstance(layer, nn.PReLU):
        return "p_re_lu", {"Alpha": "weight"}, ()
    parts = {"Kernel": "weight", "Bias": "bias"}
    if isinstance(layer, nn.ConvTranspose2d):
        return "conv2d_transpose", parts, (3, 0, 1, 2)
    if layer.groups > 1:
        return "depthwise_conv2d", parts, (3, 0, 1, 2)
    return "conv2d", parts, (0, 3, 1, 2)


def stretched(picture: np.ndarray) -> np.ndarray:
    """A picture (H, W, 3) stretched to the inputs' size without padding, as by MediaPipe.

    If both sides become smaller, each pixel is the mean of the area that it covers, as OpenCV's INTER_AREA.
    """
    if min(picture.shape[:2]) <= SIDE:
        picture = interpolated(picture, (SIDE, SIDE))
    else:
        for axis in (0, 1):
            rows = np.moveaxis(picture, axis, 0)
            sums = np.concatenate([np.zeros_like(rows[:1], float), rows.cumsum(axis=0, dtype=float)])
            edges = rows_at(sums, np.linspace(0, len(rows), SIDE + 1))
            picture = np.moveaxis(np.diff(edges, axis=0) * (SIDE / len(rows)), 0, axis)
    return np.floor(picture + 0.5)


def interpolated(picture: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """A picture (H, W, ...) of another size, interpolated linearly, as OpenCV's INTER_LINEAR."""
    for axis, length in enumerate(size):
        rows = np.moveaxis(picture, axis, 0)
        positions = (np.arange(length) + 0.5) * (len(rows) / length) - 0.5
        picture = np.moveaxis(rows_at(rows, positions), 0, axis)
    return picture


def rows_at(rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The rows at fractional positions, interpolated linearly."""
    positions = positions.clip(0, len(rows) - 1)
    below = positions.astype(int)
    share = (positions - below).astype(np.float32).reshape(-1, *[1] * (rows.ndim - 1))
    return rows[below] * (1 - share) + rows[np.minimum(below + 1, len(rows) - 1)] * share
