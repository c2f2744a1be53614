"""What every model of the zoo can do: be saved as a folder, and take the weights of its authors."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from . import pytorch
from .files import replacing

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"


@dataclasses.dataclass
class About:
    """What a folder says about a model beside its arguments, for people and for programs.

    Attributes:
        paper: Where the model was published.
        input: ``planes`` (channels of the input), ``size`` (what sizes it takes), ``multiple_of`` (what each
            size must be a multiple of) and ``normalisation``: ``scale`` (a factor), then ``mean`` and
            ``std`` of each plane, or null for inputs as they are.
        classes: For segmentation, in the order of the scores: ``name`` and ``colour`` (RGB, 0 to 255).
        source: Where the weights come from.
        licence: Under which licence, by its SPDX name where it has one.
    """

    paper: str = ""
    input: dict[str, Any] = dataclasses.field(default_factory=dict)
    classes: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    source: str = "unknown"
    licence: str = "unknown"


def read_classes(path: Path) -> list[dict[str, Any]]:
    """Names and colours from a table with a line a class, as FastSurfer and FreeSurfer have them.

    A line is number, name, red, green, blue; what follows does not matter, nor do lines that start otherwise.
    """
    classes = []
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if len(words) >= 5 and all(word.isdigit() for word in (words[0], *words[2:5])):
            colour = [int(word) for word in words[2:5]]
            classes.append({"name": words[1], "colour": colour, "label": int(words[0])})
    if not classes:
        raise ValueError(f"{path} must hold a line 'number name red green blue' for each class.")
    return classes


class Model(nn.Module):
    """A model of the zoo. Its arguments are kept in ``config``; with them it can be made again.

    Attributes:
        config: The arguments by name, with defaults.
        about: Everything else that its folder says.
    """

    model_type: ClassVar[str]
    default_about: ClassVar[About]
    # Entries of the authors' configurations that make no difference to the model.
    without_effect: ClassVar[frozenset[str]] = frozenset()

    config: dict[str, Any]
    about: About

    def __new__(cls, *args: Any, **kwargs: Any) -> Model:
        model = super().__new__(cls)
        given = inspect.signature(cls.__init__).bind_partial(model, *args, **kwargs)
        given.apply_defaults()
        # Not as mlx.nn.Module sets attributes: it takes what is in a dict for parameters.
        object.__setattr__(model, "config", dict(list(given.arguments.items())[1:]))
        object.__setattr__(model, "about", copy.deepcopy(cls.default_about))
        return model

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The arguments that the shapes of a state dict tell."""
        raise NotImplementedError

    @classmethod
    def canonical(cls, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """A state dict with each of the names that are in use turned into the one that this class knows."""
        return state

    @staticmethod
    def pytorch_names(name: str) -> tuple[str, ...]:
        """The names that a parameter has in the authors' state dict."""
        return (name,)

    def sanitize(self, weights: Mapping[str, Any]) -> dict[str, mx.array]:
        """Weights for this model, under its own names, from weights under its authors' names.

        Args:
            weights: A state dict: arrays of any framework by name, in PyTorch's layout.

        Raises:
            ValueError: If they do not fit; all that is missing, left over or misshapen is named.
        """
        state = self.canonical(pytorch.arrays_of(pytorch.state_of(weights)))
        return pytorch.from_pytorch(state, self, self.pytorch_names)

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model as a folder: its weights, its configuration, and a model card.

        Args:
            folder: Made if it is not there. :func:`zoo.from_pretrained` reads it.
        """
        folder = Path(folder)
        weights = dict(tree_flatten(self.parameters()))
        about = {"model_type": self.model_type, "config": self.config}
        about |= dataclasses.asdict(self.about)
        # Not one word more among the metadata: others read these folders as well.
        with replacing(folder / WEIGHTS) as partial:
            mx.save_safetensors(str(partial), weights, {"format": "mlx"})
        for name, text in (
            (CONFIG, json.dumps(about, indent=2) + "\n"),
            (CARD, self.card(sum(value.size for value in weights.values()))),
        ):
            with replacing(folder / name) as partial:
                partial.write_text(text, encoding="utf-8")

    def card(self, parameters: int) -> str:
        """The model card: what a person wants to know before using the weights."""
        about = self.about
        names = ", ".join(entry["name"] for entry in about.classes) or "not named"
        arguments = "\n".join(f"- `{name}`: {value}" for name, value in self.config.items())
        return f"""---
library_name: mlx
license: {about.licence.lower() if about.licence != "unknown" else "other"}
tags: [mlx, mlx-unpool, {self.model_type}]
---
# {type(self).__name__} for MLX

{(inspect.getdoc(type(self)) or "").splitlines()[0]}

- Paper: {about.paper}
- Weights: {about.source}
- Licence of the weights: {about.licence}
- Parameters: {parameters:,}
- Input: {json.dumps(about.input)}
- Classes: {names}

```python
import mlx_unpool_zoo as zoo

model = zoo.from_pretrained("path/to/this/folder")  # arrays are channels last
```

Arguments of the model:

{arguments}
"""
