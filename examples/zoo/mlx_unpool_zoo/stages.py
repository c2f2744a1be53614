"""Networks with four pooling and four unpooling layers: what FastSurfer's networks and QuickNAT share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, get_type_hints

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mlx_unpool import MaxPool2d, MaxUnpool2d

from .about import RESEARCH, Size
from .layers import Classifier
from .model import Model


class FourStages(Model):
    """An encoder and a decoder of four blocks each, with a bottleneck between them and a classifier.

    The arguments of ``__init__`` are those of all subclasses. A subclass passes other defaults as keywords of
    the ``class`` statement; ``__init__`` of the subclass has only further arguments and ``**shared``. Those
    before a ``*`` come after ``num_filters``, the others at the end.
    """

    medical: ClassVar[bool] = True
    notice: ClassVar[str] = RESEARCH
    decoders: ClassVar[tuple[str, ...]]  # names of the decoder's blocks in the order of the forward pass
    first_weight: ClassVar[str]  # the authors' name for the first convolution

    def __init_subclass__(cls, **defaults: Any) -> None:
        def init(self: FourStages, **shared: Any) -> None:
            super(cls, self).__init__(**shared)

        base: Any = super(cls, cls).__init__
        own = vars(cls).get("__init__", init)
        parameters = [
            p.replace(default=defaults.get(p.name, p.default))
            for p in inspect.signature(base).parameters.values()
        ]
        further = [p for p in list(inspect.signature(own).parameters.values())[1:] if p.kind != p.VAR_KEYWORD]
        after = 1 + [p.name for p in parameters].index("num_filters")
        parameters[after:after] = [p for p in further if p.kind == p.POSITIONAL_OR_KEYWORD]
        parameters += [p.replace(kind=p.POSITIONAL_OR_KEYWORD) for p in further if p.kind == p.KEYWORD_ONLY]
        types = get_type_hints(base, include_extras=True) | get_type_hints(own, include_extras=True)
        signature = inspect.signature(own).replace(parameters=parameters)
        vars(own)["__signature__"] = signature
        own.__annotations__ = {p.name: types[p.name] for p in parameters[1:]}
        cls.__init__ = own  # type: ignore[method-assign]
        super().__init_subclass__()

    def __init__(
        self,
        num_classes: Size,
        num_channels: Size,
        num_filters: Size = 64,
        kernel_h: Size = 5,
        kernel_w: Size = 5,
        kernel_c: Size = 1,
        stride_conv: Size = 1,
        pool: Size = 2,
        stride_pool: Size = 2,
    ) -> None:
        super().__init__()
        self.takes(num_channels)

    def add_blocks(
        self, first: nn.Module, encoder: Callable[[], nn.Module], decoder: Callable[[], nn.Module]
    ) -> None:
        """Add the blocks; the functions return a new one for the rest of the encoder and for the decoder."""
        self.encode1 = first
        for name in ("encode2", "encode3", "encode4", "bottleneck"):
            self[name] = encoder()
        for name in self.decoders:
            self[name] = decoder()
        shared = self.config["num_filters"], self.config["num_classes"]
        self.classifier = Classifier(*shared, self.config["kernel_c"], self.config["stride_conv"])
        window = self.config["pool"], self.config["stride_pool"]
        self.maxpool = MaxPool2d(*window, return_indices=True, index_format="window")
        self.unpool = MaxUnpool2d.from_pool(self.maxpool)

    def __call__(self, x: mx.array) -> mx.array:
        """Class scores (N, H, W, num_classes) of slices (N, H, W, num_channels)."""
        self.check_input(x)
        return self.classifier(self.features(x))

    def features(self, x: mx.array) -> mx.array:
        """The output of the decoder: (N, H, W, num_filters)."""
        stages = []
        for number in range(1, 5):
            skip = self.run_block(f"encode{number}", x)
            x, indices = self.maxpool(skip)
            stages.append((skip, indices))
        x = self.bottleneck(x)
        for name in self.decoders:
            skip, indices = stages.pop()
            x = self.run_block(name, self.combine(self.unpool(x, indices, output_size=skip.shape), skip))
        return x

    def run_block(self, name: str, x: mx.array) -> mx.array:
        """The output of a block of the encoder or the decoder."""
        return self[name](x)

    def combine(self, x: mx.array, skip: mx.array) -> mx.array:
        """Combine unpooled features with those of the encoder."""
        return mx.maximum(x, skip)

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        first, last = state[cls.first_weight], state["classifier.conv.weight"]
        return {
            "num_classes": last.shape[0],
            "num_channels": first.shape[1],
            "num_filters": first.shape[0],
            "kernel_h": first.shape[2],
            "kernel_w": first.shape[3],
            "kernel_c": last.shape[2],
        }
