"""The files of a model: read and written in one step.

``model.safetensors`` is the model: its metadata contain the configuration and the licence, so that
a model is one file, which is replaced in one step. ``config.json``, the model card and ``LICENSE``
are for people and for the Hub. ``config.json`` and ``LICENSE`` are read only if the weights have no
configuration.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
from huggingface_hub import snapshot_download

from mlx_unpool.porting.messages import cut, warn

from .about import ConfigFile, naming
from .files import load_arrays, save_arrays, start_of, write_file
from .published import INCLUDED, PUBLISHED

WEIGHTS, CONFIG, CARD, LICENCE = "model.safetensors", "config.json", "README.md", "LICENSE"
NOTE = (
    "This is a copy. The configuration in model.safetensors is used: to change it, load the model, "
    "set its attribute 'about', and call save_pretrained."
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
    if config_file == path:
        warn_of_changes(folder / CONFIG, text)
    return SavedModel(weights, metadata, config, config_file, licence)


def warn_of_changes(path: Path, config: str) -> None:
    """Warn if config.json is not a copy of the configuration in the weights, which is used."""
    if path.is_file() and not is_copy(path, config):
        warn(
            f"{path} differs from the configuration in {WEIGHTS}, which is used. To change the "
            "model's classes, for example, set model.about.classes, and call model.save_pretrained."
        )


def is_copy(path: Path, config: str) -> bool:
    """Whether config.json has the entries of a configuration. It may have further ones."""
    try:
        content = dict(json.loads(path.read_text(encoding="utf-8-sig")))
    except (OSError, ValueError, TypeError, RecursionError):  # it cannot be read, or is no dict
        return False
    return all(content.get(name) == value for name, value in json.loads(config).items())


def read_text(path: Path) -> str:
    """The text of a file in UTF-8."""
    with naming(path):
        start_of(path)
        return path.read_text(encoding="utf-8-sig")


def write_folder(
    folder: Path, weights: Mapping[str, mx.array], config: ConfigFile, card: str, licence: str
) -> None:
    """Write the files of a model; see ``Model.save_pretrained``."""
    content = config.model_dump(exclude={"note"})
    replaces_model = (folder / WEIGHTS).exists()
    metadata = {"format": "mlx", CONFIG: json.dumps(content), LICENCE: licence}
    save_arrays(folder / WEIGHTS, weights, metadata)
    copy = json.dumps({"note": NOTE, **content}, indent=2)
    files = {CONFIG: f"{copy}\n", CARD: f"{card}{mark_of(card)}", LICENCE: licence}
    for name, text in files.items():
        path = folder / name
        try:
            is_old_licence = replaces_model and not text
            if path.is_file() and (is_old_licence or not is_from_zoo(path, replaces_model)):
                set_aside(path)
            if text:
                write_file(path, text.encode())
        except OSError as error:
            problem = (
                f"The model is saved, in {WEIGHTS}, but {name} is still that of the model before"
            )
            warn(f"{problem}: {error}")


def mark_of(card: str) -> str:
    """The last line of a model card, which shows later whether a person has edited the card."""
    digits = f"{zlib.crc32(card.encode()):08x}"
    return f"\n<!-- mlx_unpool_zoo replaces this file if its CRC-32 is {digits}. -->\n"


def is_from_zoo(path: Path, replaces_model: bool) -> bool:
    """Whether a file was written with the model before, and nothing is lost if it is replaced."""
    if not replaces_model or path.name != CARD:
        return replaces_model
    text = path.read_text(encoding="utf-8", errors="replace")
    card = text[: text.rfind("\n<!-- ")]
    return text == card + mark_of(card)


def set_aside(path: Path) -> None:
    """Rename a file such that a new one can have its name."""
    other = path.with_name(f"{path.name}.old")
    number = 1
    while os.path.lexists(other):
        number += 1
        other = path.with_name(f"{path.name}.old{number}")
    path.rename(other)
    warn(f"{path} was edited or is not of this model: it is now {other.name}.")


# The Hugging Face Hub.


def hub_folder(name: str, **options: Any) -> Path:
    """The folder of a repository on the Hugging Face Hub, downloaded if necessary."""
    nothing = f"There is no folder {name}"
    if Path(name).is_file() or not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        known = ", ".join([*INCLUDED, *PUBLISHED])
        raise ValueError(
            f"{nothing}. Pass a folder, owner/name on the Hugging Face Hub, or the name of a "
            f"trained model: {known}."
        )
    try:
        return Path(snapshot_download(name, allow_patterns=[CONFIG, WEIGHTS, LICENCE], **options))
    except OSError as error:
        raise OSError(f"{nothing}, and the Hugging Face Hub says: {error}") from error
