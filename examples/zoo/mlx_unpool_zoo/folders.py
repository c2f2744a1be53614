"""Load models from folders on this machine or on the Hugging Face Hub."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map

from .config import arguments_of, check_about, check_arguments, read_json, shown
from .errors import cut, first_line, mismatch, of_file
from .files import load_arrays

if TYPE_CHECKING:
    from .model import Model

CONFIG, WEIGHTS, CARD, LICENCE = "config.json", "model.safetensors", "README.md", "LICENSE"
CHECKSUM = "sha256"  # the key of the checksum of the weights file
FLOATS = (mx.float32, mx.float16, mx.bfloat16, mx.float64)
PATTERNS = ["*.json", "*.safetensors", CARD, LICENCE]


def load(
    path_or_hub_id: str | Path,
    models: Mapping[str, type[Model]],
    *,
    dtype: mx.Dtype | None = None,
    strict: bool = True,
    revision: str | None = None,
) -> Model:
    """Load the model in a folder, after downloading it if there is no local folder."""
    path = Path(path_or_hub_id)
    if not path.is_dir():
        path = downloaded(str(path_or_hub_id), revision)
    for name in (CONFIG, WEIGHTS):
        if not (path / name).is_file():
            raise ValueError(
                f"[from_pretrained] {path} must contain {CONFIG} and {WEIGHTS}, but there is no {name}. "
                "Convert weights first: from_pytorch(...).save_pretrained(folder)."
            )
    model, expected = configured(path / CONFIG, models)
    if (path / LICENCE).is_file():
        model.about.licence_text = (path / LICENCE).read_text(encoding="utf-8", errors="replace")
    file = path / WEIGHTS
    if expected is not None and (found := sha256(file)) != expected:
        raise ValueError(
            f"{file} is damaged or was replaced: its SHA-256 is {found}, but {CHECKSUM!r} in {CONFIG} is "
            f"{expected}. Get the file again; if you replaced it yourself, remove the key."
        )
    weights, metadata = load_arrays(file)
    if (
        metadata.get("format") != "mlx"
    ):  # published for PyTorch, with a configuration for this package
        try:
            weights = model.sanitize(weights, strict=strict)
        except ValueError as error:
            raise of_file(error, file) from None
    return ready(model, weights, dtype=dtype, strict=strict, source=str(file))


def configured(path: Path, models: Mapping[str, type[Model]]) -> tuple[Model, str | None]:
    """The model described by ``config.json``, with random weights, and the checksum of the weights file."""
    about = read_json(path)
    model_type = about.pop("model_type", None)
    if not isinstance(model_type, str) or model_type not in models:
        raise ValueError(
            f"{path}: 'model_type' must be {or_list(models)}, but got {shown(model_type)}."
        )
    cls = models[model_type]
    arguments, checksum = about.pop("config", None), about.pop(CHECKSUM, None)
    if not isinstance(arguments, dict):
        raise ValueError(
            f"{path}: 'config' must be an object with the arguments of {model_type} "
            f"({', '.join(arguments_of(cls))}), but got {shown(arguments)}."
        )
    if not (checksum is None or (isinstance(checksum, str) and len(checksum) == 64)):
        raise ValueError(
            f"{path}: {CHECKSUM!r} must be the 64 hexadecimal digits of a SHA-256, but got {shown(checksum)}."
        )
    check_about(about, str(path))
    try:
        model = cls(**check_arguments(cls, arguments, f"{path}: 'config'"))
    except Exception as error:  # inconsistent arguments raise many kinds of errors
        said = first_line(error)
        if not said.startswith(str(path)):
            said = f"{path}: 'config' of {model_type} is not accepted: {said}"
        raise ValueError(f"{said}.") from None
    for name, value in about.items():
        setattr(model.about, name, model.about.input | value if name == "input" else value)
    return model, checksum


def or_list(names: Mapping[str, Any]) -> str:
    """One name in quotes, or ``one of a, b`` for several."""
    return repr(next(iter(names))) if len(names) == 1 else f"one of {', '.join(names)}"


def downloaded(hub_id: str, revision: str | None) -> Path:
    """The cached folder of a model on the Hugging Face Hub, downloaded if necessary."""
    if hub_id.count("/") != 1 or hub_id.startswith((".", "/", "~")) or hub_id.endswith("/"):
        raise ValueError(
            "[from_pretrained] 'path_or_hub_id' must be a folder, or 'owner/name' on the Hugging Face Hub, "
            f"but got {hub_id!r}, and there is no such folder."
        )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ValueError(
            f"[from_pretrained] There is no folder {hub_id}. To load it from the Hugging Face Hub: "
            "pip install huggingface_hub."
        ) from None
    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=PATTERNS))
    except Exception as error:  # no network, no such repository or revision, no access, a full disk
        at = f" at revision {revision!r}" if revision else ""
        raise ValueError(
            f"[from_pretrained] There is no folder {hub_id}, and it cannot be loaded from the Hugging Face "
            f"Hub{at}: {type(error).__name__}: {first_line(error)}."
        ) from None


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def ready(
    model: Model,
    weights: Mapping[str, mx.array],
    *,
    dtype: mx.Dtype | None = None,
    strict: bool = True,
    source: str = "these weights",
) -> Model:
    """Set the weights of a model and return it in evaluation mode.

    The arrays are evaluated and made contiguous, because MLX cannot export lazily loaded arrays and exports
    strided ones incorrectly.
    """
    if dtype is not None and dtype not in FLOATS:
        raise ValueError(
            "[from_pretrained] 'dtype' must be one of mx.float32, mx.float16, mx.bfloat16 and mx.float64, "
            f"but got {dtype}."
        )
    own = dict(tree_flatten(model.parameters()))
    lines = [f"missing: {name}" for name in own if name not in weights] if strict else []
    lines += [
        f"shape {weights[name].shape} instead of {value.shape}: {name}"
        for name, value in own.items()
        if name in weights and weights[name].shape != value.shape
    ]
    unused = [name for name in weights if name not in own]
    lines += [f"not used: {name}" for name in unused] if strict else []
    if lines:
        raise mismatch(type(model).__name__, lines, source)
    if unused:
        warnings.warn(f"Ignored arrays of {source}: {cut(unused)}.", stacklevel=3)
    model.load_weights(
        [(name, mx.contiguous(value)) for name, value in weights.items() if name in own],
        strict=False,
    )
    if dtype is not None:
        model.update(
            tree_map(
                lambda v: v.astype(dtype) if mx.issubdtype(v.dtype, mx.floating) else v,
                model.parameters(),
            )
        )
    model.eval()
    mx.eval(model.parameters())
    return model
