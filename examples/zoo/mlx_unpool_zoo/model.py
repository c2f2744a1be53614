"""The base class of the models, and functions that create a model of any type."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from typing_extensions import Self

import mlx_unpool
from mlx_unpool.porting import convert_state_dict
from mlx_unpool.porting.messages import cut, shortened, warn
from mlx_unpool.porting.names import without_prefixes
from mlx_unpool.porting.state_dicts import Differences, Strict

from . import inputs, saving
from .about import About, ConfigFile, Facts, arguments_of, check_about, naming
from .checkpoints import read_checkpoint
from .model_card import model_card
from .published import INCLUDED, PUBLISHED, cache_of, downloaded
from .state_dicts import arrays_of, config_of, state_of

MODELS: dict[str, type[Any]] = {}  # by model_type
DTYPES = {name: getattr(mx, name) for name in ("float32", "float16", "bfloat16", "float64")}
# Other spellings of an argument in the authors' configurations.
ALIASES = dict.fromkeys(("classes", "num_class", "n_classes"), "num_classes")


class Model(nn.Module):
    """Base class of the models: predict, load, save, upload, convert the authors' weights.

    Attributes:
        config: Arguments of the model, with defaults.
        about: Information that is saved with the model, such as its classes; see ``About``.
        facts: What is known about the network, whatever its weights.
        channels, dims: Channels and spatial dimensions of inputs.
        smallest, multiple: Each spatial size is at least ``smallest`` and a multiple of
            ``multiple``.
        picture_channels: Channels of the images that ``predict`` accepts; inputs may have further
            ones.
    """

    model_type: ClassVar[str]
    facts: ClassVar[Facts]
    __signature__: ClassVar[inspect.Signature]

    config: dict[str, Any]
    about: About

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # That of the constructor without ``self``; Sphinx would show that of __new__.
        constructor = inspect.signature(cls.__init__)
        parameters = list(constructor.parameters.values())
        cls.__signature__ = constructor.replace(parameters=parameters[1:])
        if "model_type" in vars(cls):
            MODELS[cls.model_type] = cls

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Check the arguments, before the constructor runs, and keep them as ``config``."""
        model = super().__new__(cls)
        # mlx.nn.Module would treat the entries of a dict as parameters.
        object.__setattr__(model, "config", arguments_of(cls, args, kwargs))
        return model

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]:
        """What ``copy`` and ``pickle`` pass to ``__new__``."""
        return (), self.config

    def __init__(
        self,
        channels: int,
        dims: int = 2,
        smallest: int = 1,
        multiple: int = 1,
        picture_channels: int = 0,
    ) -> None:
        """Set the attributes with these names, and ``about``."""
        super().__init__()
        self.channels, self.dims = channels, dims
        self.smallest, self.multiple = smallest, multiple
        self.picture_channels = picture_channels or channels
        normalisation = self.facts.normalisation
        classes = self.facts.classes.get(self.config["num_classes"], [])
        self.about = About(input={"normalisation": normalisation}, classes=classes)  # copies

    def check_about(self) -> None:
        """Raise ValueError if an entry of ``about`` is invalid or does not fit the model."""
        check_about(self.about, self.config["num_classes"], self.channels)

    # Inputs and predictions.

    def check_input(self, x: mx.array) -> None:
        """Raise an error if an input is not an array of MLX with the shape (N, ..., channels)."""
        kind, sizes = type(self).__name__, (self.smallest, self.multiple)
        inputs.check_input(x, kind, self.channels, self.dims, *sizes)

    def preprocess(self, images: Any) -> mx.array:
        """Images as an input of the model, normalised and padded at the bottom and right.

        Args:
            images: A Pillow image or an array (H, W, channels), or several of the same size in a
                list or an array. Values are 0 to 255 (uint8) or 0 to 1 (floating point). Values of
                grey Pillow images of more than 8 bits are those of ``about.input["range"]``, with
                others clipped; without it 0 to 65535, or 0 to 1 for floats. An axis of one channel
                may be left out. A medical model also accepts a volume (N, H, W), or (N, H, W, 2)
                for two modalities; neighbouring slices are its channels. Signals and 3-D inputs
                are not scaled.

        Returns:
            An MLX array (N, ..., channels).
        """
        return self._normalised(self._batch(images)[0])

    def predict(self, images: Any, *args: Any, **kwargs: Any) -> np.ndarray:
        """The class index of every position of images: its position in ``about.classes``.

        Images are processed one by one in evaluation mode. The mode of the model does not change,
        so threads can share it; before another thread uses a new model, call
        ``mx.eval(model.parameters())``. Images whose shorter side is larger than
        ``about.input["side"]`` are scaled down, and their classes up again.

        Args:
            images: As for ``Model.preprocess``.
            args, kwargs: Further arguments of the model, such as the scale factor of
                FastSurferVINN.

        Returns:
            A NumPy array of integers, (H, W) for one image and (N, H, W) for a batch or a volume.
        """
        return self._for_each(inputs.classes_of, images, args, kwargs)

    def probabilities(self, images: Any, *args: Any, **kwargs: Any) -> np.ndarray:
        """The probability of every class at every position of images: the softmax of the scores.

        Images are processed as by ``Model.predict``. The probabilities of an image that was scaled
        down are scaled up linearly (bilinearly in 2-D).

        Args:
            images, args, kwargs: As for ``Model.predict``.

        Returns:
            A float32 NumPy array, (H, W, classes) for one image and (N, H, W, classes) for several.
        """
        return self._for_each(inputs.probabilities_of, images, args, kwargs)

    def _for_each(
        self, made_of: Callable[..., np.ndarray], images: Any, args: Any, kwargs: Any
    ) -> np.ndarray:
        """What a function makes of the scores of each image, its size for the model and its own
        size."""
        values, single = self._batch(images)
        results = []
        # A change of the mode would affect other threads that use the model.
        training = any(module.training for module in self.modules())
        model: Any = inputs.copied(self).eval() if training else self
        for image in values:
            small = inputs.reduced(image, self.about.input.get("side"))
            scores = model(model._normalised(small[None]), *args, **kwargs)
            results.append(made_of(scores[0], small.shape, image.shape))
        return results[0] if single else np.stack(results)

    def _batch(self, images: Any) -> tuple[np.ndarray, bool]:
        """Images as an array (N, ..., channels), and whether there was only one, without an axis
        N."""
        self.check_about()
        kind, modalities = type(self).__name__, self.facts.modalities
        return inputs.batch_of(
            images, kind, self.picture_channels, self.dims, modalities, self.about.input
        )

    def _normalised(self, values: np.ndarray) -> mx.array:
        """A batch as the model was trained on it, padded with its edges to a multiple of the
        size."""
        normalisation = self.about.input.get("normalisation")
        values = inputs.normalised(values, self.dims, self.facts.multiple_of, normalisation)
        parameters = dict(tree_flatten(self.parameters())).values()
        dtype = next(v.dtype for v in parameters if mx.issubdtype(v.dtype, mx.floating))
        return mx.array(values).astype(dtype)

    # Folders, the Hugging Face Hub and published weights.

    @classmethod
    def from_pretrained(
        cls,
        path_or_hub_id: str | Path,
        *,
        dtype: mx.Dtype | str | None = None,
        strict: bool = True,
        ignore_mismatched_sizes: bool = False,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        **arguments: Any,
    ) -> Self:
        """Load a model in evaluation mode, from a folder, the Hugging Face Hub, or by the name of
        weights.

        Published weights, which are downloaded from their authors, are checked and converted at the
        first call; their licence and source are printed and stored in ``about``.

        Args:
            path_or_hub_id: A folder, "owner/name" on the Hub, "digits" for the small SegNet in this
                package, or published weights: "hair", "relaynet".
            dtype: Type of parameters and inputs: ``"float32"``, ``"float16"``, ``"bfloat16"`` or
                ``"float64"``. Default: as in the file.
            strict: Whether the file must have exactly the parameters of the model. If False,
                missing ones get new random values and others are ignored, with a warning.
            ignore_mismatched_sizes: Whether parameters with a different shape get new random
                values.
            revision, token, cache_dir, local_files_only: As for
                ``huggingface_hub.snapshot_download``. The default folder for published weights is
                that of the environment variable MLX_UNPOOL_CACHE, or else ``mlx_unpool`` in the
                user's folder for caches.
            **arguments: Arguments of the model that replace those with which it was saved.

        Raises:
            OSError: If there is no such repository, a download fails, or a file is missing.
            ValueError: If the folder does not contain a model of this class, the weights do not
                fit, or there is no such folder and the name is not of the form "owner/name".
        """
        hub_options = {"revision": revision, "token": token}
        download_options = {"cache_dir": cache_dir, "local_files_only": local_files_only}
        folder, name = Path(path_or_hub_id), str(path_or_hub_id)
        if not folder.is_dir():
            if name in INCLUDED:
                folder = INCLUDED[name]
            elif name in PUBLISHED:
                folder = published_folder(name, cache_of(cache_dir), local_files_only)
            else:
                folder = saving.hub_folder(name, **hub_options, **download_options)
        saved = saving.read_folder(folder)
        with naming(saved.config_file):
            model = cls._created(saved.config, arguments)
        model.about.licence_text = saved.licence
        with naming(folder / saving.WEIGHTS):
            model._set_saved_weights(saved, dtype, strict, ignore_mismatched_sizes)
        return model

    @classmethod
    def _created(cls, saved: ConfigFile, arguments: dict[str, Any]) -> Self:
        """A new model with a saved configuration, before it is quantised."""
        if saved.model_extra:
            warn(f"Unknown keys of {saving.CONFIG}: {cut([*saved.model_extra])}")
        model = cls._kind_of(saved.model_type)(**saved.config | arguments)
        about = saved.entries_of_about(model.about)
        if "num_classes" in arguments:  # a new head
            about["classes"] = model.about.classes
        model.about = About(**about)
        model.check_about()
        layers = dict(model.named_modules())
        for name in saved.quantization:
            if not hasattr(layers.get(name), "to_quantized"):
                raise ValueError(f"'quantization' must name Linear layers, but got {cut([name])}.")
        return model

    @classmethod
    def _kind_of(cls, model_type: str) -> type[Self]:
        """The class of models with this ``model_type``, which must be this one or derived from
        it."""
        kinds = {name: kind for name, kind in MODELS.items() if issubclass(kind, cls)}
        if model_type in kinds:
            return kinds[model_type]
        hint = ""
        if model_type in MODELS:
            name = MODELS[model_type].__name__
            hint = f": use {name}.from_pretrained, or from_pretrained of mlx_unpool_zoo."
        got = shortened(repr(model_type))
        raise ValueError(f"'model_type' must be one of {', '.join(kinds)}, but got {got}{hint}")

    def _set_saved_weights(
        self, saved: saving.SavedModel, dtype: Any, strict: bool, ignore_mismatched_sizes: bool
    ) -> None:
        """Set the weights in a file, after quantising the layers that are quantised there."""
        weights, quantized = saved.weights, saved.config.quantization
        if saved.metadata.get("format") == "pt":  # published for PyTorch
            weights = self.sanitize(weights, strict=strict)
        if quantized:
            nn.quantize(self, class_predicate=lambda name, _: quantized.get(name, False))
        self.set_weights(weights, dtype, strict, ignore_mismatched_sizes)

    def save_pretrained(self, folder: str | Path) -> None:
        """Save the model as a folder with weights, configuration, model card and licence.

        The weights contain the configuration and the licence; the other files are for people and
        the Hub. A load always gets the old model or the new one, even if another process saves it
        meanwhile, or this one is killed. If this model has no licence text, the LICENSE of the old
        model is renamed to LICENSE.old.

        Raises:
            OSError: If the weights cannot be written, for example because the disk is full. The
                folder is then unchanged. If another file cannot be written, there is a warning.
            ValueError: If a weight is not finite, or ``about`` is invalid.
        """
        self.check_about()
        self.check_finite()
        quantization = {
            name: {key: getattr(layer, key) for key in ("group_size", "bits", "mode")}
            for name, layer in self.named_modules()
            if isinstance(layer, nn.QuantizedLinear)
        }
        config = ConfigFile(
            model_type=self.model_type,
            config=self.config,
            about=self.about.model_dump(),
            quantization=quantization,
        )
        weights = dict(tree_flatten(self.parameters()))
        card = str(self.model_card())
        saving.write_folder(Path(folder), weights, config, card, self.about.licence_text)

    def model_card(self) -> Any:
        """A model card with the Hub's metadata and all facts that a user of the weights needs."""
        return model_card(type(self), self.config, self.about)

    # Weights.

    @classmethod
    def from_pytorch(
        cls,
        state_dict: Mapping[str, Any],
        *,
        dtype: mx.Dtype | str | None = None,
        strict: Strict = True,
        **arguments: Any,
    ) -> Self:
        """Create a model from a PyTorch state dict with the authors' names, in evaluation mode.

        ``state_dict`` is a checkpoint or contains tensors or arrays. ``arguments`` are those that
        neither its shapes nor its configuration determine. ``dtype`` and ``strict`` are as for
        ``Model.from_pretrained``; with ``strict="missing"``, arrays that the model does not have
        are ignored, but none may be missing.
        """
        try:
            state = cls._without_prefix(cls.state_from(state_dict))
            model = cls._inferred(state, config_of(state_dict), arguments)
            model.set_weights(model.sanitize(state, strict=strict), dtype, strict)
        except (ValueError, TypeError) as error:
            hint = ""
            if cls.facts.names_of and re.search("missing: |not used: ", str(error)):
                hint = f" The names must be those of {cls.facts.names_of}."
            raise ValueError(f"{error}{hint}") from None
        classes = cls.facts.published_classes.get(model.config["num_classes"], [])
        model.about.classes = model.about.classes or classes
        return model

    @classmethod
    def _without_prefix(cls, state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """A state dict whose names have no prefix, such as that of ``torch.nn.DataParallel``."""
        try:
            cls.config_of(state)
        except KeyError as error:  # the name of a parameter
            return without_prefixes(state, [str(error.args[0])])
        except IndexError:  # a parameter with too few axes
            pass
        return state

    @classmethod
    def _inferred(
        cls, state: dict[str, np.ndarray], published: Mapping[str, Any], given: Mapping[str, Any]
    ) -> Self:
        """A new model whose arguments are those in a configuration, in the shapes, and given ones.

        Arguments that the shapes determine replace those of the configuration, and given ones both.
        """
        try:
            inferred = cls.config_of(state)
        except (KeyError, IndexError) as error:
            raise ValueError(
                f"these are not weights of {cls.model_type} with the names of "
                f"{cls.facts.names_of or 'its authors'}: there is no {error} but {cut([*state])}."
            ) from None
        known = inspect.signature(cls).parameters
        arguments = {}
        for name, value in published.items():
            if ALIASES.get(name, name) in known:
                arguments[ALIASES.get(name, name)] = value
        arguments.update(inferred)
        for name, value in given.items():
            if ALIASES.get(name, name) not in cls.facts.without_effect - set(known):
                arguments[ALIASES.get(name, name)] = value
        return cls(**arguments)

    @classmethod
    def config_of(cls, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The arguments that can be inferred from the shapes of a state dict."""
        raise NotImplementedError

    @classmethod
    def state_from(cls, checkpoint: Any) -> dict[str, np.ndarray]:
        """The arrays in a checkpoint, with the names of ``Model.pytorch_names``."""
        return cls.canonical(arrays_of(state_of(checkpoint)))

    @classmethod
    def canonical(cls, state: dict[str, Any]) -> dict[str, Any]:
        """Rename the parameters of a state dict to those of ``Model.pytorch_names``, if
        necessary."""
        return state

    @staticmethod
    def pytorch_names(name: str) -> tuple[str, ...]:
        """The names of a parameter in the authors' state dict; without MLX's ``layers`` of a
        Sequential."""
        return (name.replace(".layers.", "."),)

    def sanitize(self, weights: Mapping[str, Any], *, strict: Strict = True) -> dict[str, mx.array]:
        """Convert weights with the authors' names and layout, as arrays of any framework."""
        state = self.state_from(weights)
        return convert_state_dict(self, state, self.pytorch_names, strict=strict)

    def set_weights(
        self,
        weights: Mapping[str, mx.array],
        dtype: mx.Dtype | str | None = None,
        strict: bool | str = True,
        ignore_mismatched_sizes: bool = False,
    ) -> None:
        """Set all parameters, change to evaluation mode, and evaluate, because MLX cannot export
        lazily loaded arrays. The arguments are as for ``Model.from_pretrained``, whose errors this
        raises."""
        own = dict(tree_flatten(self.parameters()))
        fitting = self._fitting(weights, own, strict, ignore_mismatched_sizes)
        if new := [name for name in own if name not in fitting]:
            warn(f"Parameters with new random values: {cut(new)}")
        if unused := [name for name in weights if name not in own]:
            warn(f"Parameters that are ignored: {cut(unused)}")
        self.load_weights(list(fitting.items()), strict=False)
        if dtype is not None:
            self.set_dtype(dtype_of(dtype))
        self.check_finite()
        self.eval()

    def _fitting(
        self,
        weights: Mapping[str, mx.array],
        own: Mapping[str, mx.array],
        strict: bool | str,
        any_size: bool,
    ) -> dict[str, mx.array]:
        """The weights that can replace the model's own parameters; an error if others are not
        allowed."""
        differences, fitting = Differences(), {}
        for name, parameter in own.items():
            if name not in weights:
                differences.missing.append(name)
            elif differences.fits(name, weights[name], parameter.shape, parameter.dtype):
                fitting[name] = weights[name]
        differences.unused = [name for name in weights if name not in own]
        if any_size:
            differences.shapes = []
        hint = "ignore_mismatched_sizes=True gives these parameters new random values."
        differences.check(type(self).__name__, strict, hint)
        return fitting

    def check_finite(self) -> None:
        """Raise ValueError if a weight is NaN or infinite. Evaluates the weights."""
        parameters = dict(tree_flatten(self.parameters()))
        if bad := [name for name, value in parameters.items() if not mx.isfinite(value).all()]:
            raise ValueError(f"the weights must be finite, but these are not: {cut(bad)}")


def dtype_of(name: mx.Dtype | str) -> mx.Dtype:
    """The type of parameters with a name such as "float16". Types of MLX are returned as they
    are."""
    dtype = DTYPES.get(name) if isinstance(name, str) else name
    if not isinstance(dtype, mx.Dtype) or dtype not in DTYPES.values():
        raise ValueError(f"'dtype' must be one of {', '.join(DTYPES)} but got {name!r}.")
    return dtype


from_pretrained = Model.from_pretrained  # a model of any type


def from_pytorch(model_type: str, state_dict: Mapping[str, Any], **options: Any) -> Model:
    """Create a model of a ``model_type`` such as ``"enet"`` from PyTorch weights; see
    ``Model.from_pytorch``."""
    if model_type not in MODELS:
        raise ValueError(f"'model_type' must be one of {', '.join(MODELS)} but got {model_type!r}.")
    return MODELS[model_type].from_pytorch(state_dict, **options)


def published_folder(name: str, cache: Path, local_files_only: bool) -> Path:
    """The folder of a model in a cache. Published weights are downloaded and converted at the first
    call."""
    entry = PUBLISHED[name]
    folder = cache / f"{name}-{mlx_unpool.__version__}-{entry.sha256[:8]}"
    if not (folder / saving.WEIGHTS).is_file():
        model = from_pytorch(
            name, read_checkpoint(downloaded(name, entry, cache, local_files_only))
        )
        model.about.source, model.about.licence = entry.source, entry.licence
        model.about.licence_link = entry.licence_link
        model.save_pretrained(folder)
        origin = f"{name}: from {entry.source}, {entry.licence} ({entry.licence_link})"
        if model.facts.notice:
            origin += f". {model.facts.notice}"
        print(origin, file=sys.stderr)
    return folder
