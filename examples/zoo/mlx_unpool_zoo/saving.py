"""The files of a model: read and written in one step.

``model.safetensors`` is the model: its metadata contain the configuration and the licence, so that a model is
one file, which is replaced in one step. ``config.json``, the model card and ``LICENSE`` are for people and
for the Hub. ``config.json`` and ``LICENSE`` are read only if the weights have no configuration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
from huggingface_hub import snapshot_download

from mlx_unpool.porting.messages import cut, warn

from .about import ConfigFile, naming
from .files import load_arrays, save_arrays, write_file
from .published import INCLUDED, PUBLISHED

WEIGHTS, CONFIG, LICENCE = "model.safetensors", "config.json", "LICENSE"
NOTE = (
    "This is a copy. The configuration in model.safetensors is used: to change it, load the model, set its "
    "attribute 'about', and call save_pretrained."
)


class SavedModel(NamedTuple):
    """What the files of a model contain."""

    weights: dict[str, mx.array]
    metadata: dict[str, str]
    config: ConfigFile
    config_file: Path  # where ``config`` is from
    licence: str


def read_folder(folder: Path) -> SavedModel:
    """Read the files of a model."""
    path = folder / WEIGHTS
    if not path.exists():
        inside = [str(path.parent) for path in sorted(folder.glob(f"*/{WEIGHTS}"))]
        hint = f": did you mean {cut(inside, 3, ' or ')}?" if inside else ""
        raise FileNotFoundError(f"There is no {WEIGHTS} in the folder {folder}{hint}")
    with naming(path):
        weights, metadata = load_arrays(path)
    if CONFIG in metadata:
        config_file, text, licence = path, metadata[CONFIG], metadata.get(LICENCE, "")
    else:
        config_file = folder / CONFIG
        text, licence = read_text(config_file), ""
        if (folder / LICENCE).is_file():
            licence = read_text(folder / LICENCE)
    with naming(config_file):
        config = ConfigFile.model_validate_json(text)
    return SavedModel(weights, metadata, config, config_file, licence)


def read_text(path: Path) -> str:
    """The text of a file in UTF-8."""
    with naming(path):
        return path.read_text(encoding="utf-8-sig")


def write_folder(
    folder: Path, weights: Mapping[str, mx.array], config: ConfigFile, card: str, licence: str
) -> None:
    """Write the files of a model; see ``Model.save_pretrained``."""
    path, content = folder / WEIGHTS, config.model_dump(exclude={"note"})
    replaces_model = path.exists()
    save_arrays(path, weights, {"format": "mlx", CONFIG: json.dumps(content), LICENCE: licence})
    copy = json.dumps({"note": NOTE, **content}, indent=2)
    files = {CONFIG: f"{copy}\n", "README.md": card, LICENCE: licence}
    for name, text in files.items():
        try:
            if text:
                write_file(path.with_name(name), text.encode())
            elif replaces_model and path.with_name(name).exists():  # a licence of the old model
                path.with_name(name).replace(path.with_name(f"{name}.old"))
        except OSError as error:
            problem = f"The model is saved, in {WEIGHTS}, but {name} is still that of the model before"
            warn(f"{problem}: {error}")


# The Hugging Face Hub.


def hub_folder(name: str, **options: Any) -> Path:
    """The folder of a repository on the Hugging Face Hub, downloaded if necessary."""
    nothing = f"There is no folder {name}"
    if Path(name).is_file() or not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        known = ", ".join([*INCLUDED, *PUBLISHED])
        raise ValueError(
            f"{nothing}. Pass a folder, owner/name on the Hugging Face Hub, or the name of a trained model: "
            f"{known}."
        )
    try:
        return Path(snapshot_download(name, allow_patterns=[CONFIG, WEIGHTS, LICENCE], **options))
    except OSError as error:
        raise OSError(f"{nothing}, and the Hugging Face Hub says: {error}") from error
