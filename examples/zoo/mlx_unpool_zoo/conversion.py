"""Give a model its weights: those of the authors, under PyTorch's names, or the arrays of a file."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from typing_extensions import Self

import mlx_unpool

from . import checkpoints, pytorch
from .about import MODELS, Configured

DTYPES = {name: getattr(mx, name) for name in ("float32", "float16", "bfloat16", "float64")}
# Other spellings of an argument in the authors' configurations.
ALIASES = dict.fromkeys(("classes", "num_class", "n_classes"), "num_classes")


class Converted(Configured):
    """The weights of ``Model``."""

    @classmethod
    def from_pytorch(
        cls,
        state_dict: Mapping[str, Any],
        *,
        dtype: mx.Dtype | str | None = None,
        strict: bool = True,
        **arguments: Any,
    ) -> Self:
        """Create a model from a PyTorch state dict with the authors' names, in evaluation mode.

        ``state_dict`` is a checkpoint or contains tensors or arrays. ``arguments`` are those that neither its
        shapes nor its configuration determine. ``dtype`` and ``strict`` are as for ``Model.from_pretrained``.
        """
        published = checkpoints.config_of(state_dict)
        state = cls.canonical(checkpoints.arrays_of(checkpoints.state_of(state_dict)))
        try:
            cls.config_of(state)
        except KeyError as error:  # the name of a parameter
            state = pytorch.without_prefix(state, [str(error.args[0])])
        except (IndexError, StopIteration, ValueError):
            pass  # explained below
        try:
            model = cls._inferred(state, published, arguments)
            model.about.converter = f"mlx_unpool {mlx_unpool.__version__}"
            table = cls.published_tables.get(model.config.get("num_classes"), [])
            model.about.classes = model.about.classes or table
            model.set_weights(model.sanitize(state, strict=strict), dtype, strict)
        except (ValueError, TypeError) as error:
            others = [n for n, kind in MODELS.items() if kind is not cls and kind.fits(state)]
            hint = f" The weights look like those of {' or '.join(others)}." * bool(others)
            if not others and cls.names_of and re.search("missing: |not used: ", str(error)):
                hint = f" The names must be those of {cls.names_of}."
            raise ValueError(f"{error}{hint}") from None
        return model

    @classmethod
    def _inferred(cls, state: Any, published: Mapping[str, Any], arguments: Any) -> Self:
        """A new model with the arguments that the shapes and a configuration determine, and further ones."""
        known = inspect.signature(cls.__init__).parameters
        try:
            inferred = cls.config_of(state)
        except (KeyError, IndexError, StopIteration) as error:
            raise ValueError(
                f"these are not weights of {cls.model_type} with the names of "
                f"{cls.names_of or 'its authors'}: there is no {error} but {checkpoints.cut(list(state))}."
            ) from None
        renamed = [{ALIASES.get(n, n): v for n, v in given.items()} for given in (published, arguments)]
        file = {n: v for n, v in renamed[0].items() if n in known}
        given = {n: v for n, v in renamed[1].items() if n in known or n not in cls.without_effect}
        return cls(**file | inferred | given)

    @classmethod
    def fits(cls, state: dict[str, np.ndarray]) -> bool:
        """Whether a state dict has exactly the parameters of this model."""
        try:
            cls._inferred(state, {}, {}).sanitize(state)
        except (ValueError, TypeError):
            return False
        return True

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The arguments that can be inferred from the shapes of a state dict."""
        raise NotImplementedError

    @classmethod
    def canonical(cls, state: dict[str, Any]) -> dict[str, Any]:
        """Rename the parameters of a state dict to those of ``Model.pytorch_names``, if necessary."""
        return state

    @staticmethod
    def pytorch_names(name: str) -> tuple[str, ...]:
        """The names of a parameter in the authors' state dict."""
        return (name,)

    def sanitize(self, weights: Mapping[str, Any], *, strict: bool = True) -> dict[str, mx.array]:
        """Convert weights with the authors' names and layout, as arrays of any framework."""
        state = self.canonical(checkpoints.state_of(weights))
        return pytorch.convert_state_dict(self, state, self.pytorch_names, strict=strict)

    def set_weights(
        self,
        weights: Mapping[str, mx.array],
        dtype: mx.Dtype | str | None = None,
        strict: bool = True,
        ignore_mismatched_sizes: bool = False,
    ) -> None:
        """Set all parameters, change to evaluation mode, and evaluate, because MLX cannot export lazily
        loaded arrays. The arguments are as for ``Model.from_pretrained``, whose errors this raises."""
        own = dict(tree_flatten(self.parameters()))
        missing = [name for name in own if name not in weights]
        unused = [name for name in weights if name not in own]
        other = [n for n in own if n in weights and weights[n].shape != own[n].shape]
        shapes = [f"shape {weights[n].shape} instead of {own[n].shape}: {n}" for n in other]
        problems = [
            [f"missing: {n}" for n in missing if strict],
            [] if ignore_mismatched_sizes else shapes,
            [f"not used: {n}" for n in unused if strict],
            [line for n in own if n in weights for line in pytorch.wrong_type(n, weights[n], own[n])],
        ]
        if any(problems):
            hint = "ignore_mismatched_sizes=True gives these parameters new random values."
            new_head = len(shapes) == sum(map(len, problems))  # probably
            raise pytorch.mismatch(type(self).__name__, problems, hint * new_head)
        if new := [*missing, *other]:
            warnings.warn(f"Parameters with new random values: {checkpoints.cut(new)}", stacklevel=3)
        if unused:
            warnings.warn(f"Parameters that are ignored: {checkpoints.cut(unused)}", stacklevel=3)
        self.load_weights([(n, weights[n]) for n in own.keys() - new], strict=False)
        if dtype is not None:
            wanted = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
            if not isinstance(wanted, mx.Dtype) or wanted not in DTYPES.values():
                raise ValueError(f"'dtype' must be one of {', '.join(DTYPES)} but got {dtype!r}.")
            self.set_dtype(wanted)
        self.check_finite()
        self.eval()

    def check_finite(self) -> None:
        """Raise ValueError if a weight is NaN or infinite. Evaluates the weights."""
        found = dict(tree_flatten(self.parameters()))
        if bad := [name for name, value in found.items() if not mx.isfinite(value).all()]:
            raise ValueError(f"the weights must be finite, but these are not: {checkpoints.cut(bad)}")
