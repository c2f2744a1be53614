"""Weights that others published: downloaded from their authors, checked by a digest and converted."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pooch
from huggingface_hub import constants
from requests import RequestException

import mlx_unpool

from .checkpoints import read_checkpoint
from .files import replacing


class Published(NamedTuple):
    """A file with weights, the addresses where its authors and mirrors offer it, and what its card says."""

    addresses: tuple[str, ...]  # tried in this order
    sha256: str
    source: str
    licence: str
    licence_link: str


_MEDIAPIPE = "https://storage.googleapis.com/mediapipe-assets/"
_RELAYNET = "https://github.com/ai-med/relaynet_pytorch"
_COMMIT = "40ae1aa56e426da14ddca37e06c2f31966febea5"
PUBLISHED = {  # by name, which is also the model_type
    "hair": Published(
        addresses=(
            f"{_MEDIAPIPE}hair_segmentation.tflite",
            f"{_MEDIAPIPE}models/hair_segmentation.tflite?generation=1782183352625668",
        ),
        sha256="d2c940c4fd80edeaf38f5d7387d1b4235ee320ed120080df67c663e749e77633",
        source=f"MediaPipe ({_MEDIAPIPE}hair_segmentation.tflite); the licence is that of its repository",
        licence="Apache-2.0",
        licence_link="https://github.com/google-ai-edge/mediapipe/blob/master/LICENSE",
    ),
    "relaynet": Published(
        addresses=(f"{_RELAYNET}/raw/{_COMMIT}/models/Exp01/relaynet_epoch16.model",),
        sha256="143e72c0022a5f8a6f340819938a97bd0b16110a7cedddb56bdb9bd3886e79e3",
        source=f"{_RELAYNET}, commit {_COMMIT[:7]}, epoch 16",
        licence="MIT",
        licence_link=f"{_RELAYNET}/blob/{_COMMIT}/LICENSE",
    ),
}


def published_folder(name: str, kind: Any, cache_dir: str | Path | None, local_files_only: bool) -> Path:
    """The folder of a model whose published weights are downloaded and converted at the first call.

    It is in ``cache_dir``, the folder of the variable MLX_UNPOOL_CACHE, or the user's folder for caches.

    Raises:
        OSError: If the weights can be neither read nor downloaded, or the folder cannot be written.
    """
    cache = Path(cache_dir or os.environ.get("MLX_UNPOOL_CACHE") or pooch.os_cache("mlx_unpool"))
    entry = PUBLISHED[name]
    folder = cache / f"{name}-{entry.sha256[:8]}-{mlx_unpool.__version__}"
    if not (folder / "model.safetensors").is_file():
        file = downloaded(name, cache, local_files_only or constants.HF_HUB_OFFLINE)
        model = kind.from_pytorch(read_checkpoint(file))
        model.about.source, model.about.licence = entry.source, entry.licence
        model.about.licence_link = entry.licence_link
        model.save_pretrained(folder)
        said = f"{name}: from {entry.source}, {entry.licence} ({entry.licence_link})"
        print(said, model.facts.notice, sep=". " * bool(model.facts.notice), file=sys.stderr)
    return folder


def downloaded(name: str, cache: Path, offline: bool) -> Path:
    """The file of an entry. It gets its name after it is complete and its digest has been checked."""
    entry, problems = PUBLISHED[name], []
    path = cache / f"{name}-{entry.sha256[:8]}{Path(entry.addresses[0]).suffix}"
    if path.is_file() and pooch.file_hash(path) == entry.sha256:
        return path
    if offline:
        raise OSError(f"the weights {name!r} are not in {cache}, and downloads are switched off.")
    for address in entry.addresses:
        try:
            with replacing(path) as partial:
                pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=30)(address, partial, None)
                if pooch.file_hash(partial) != entry.sha256:
                    raise ValueError("the file was changed, its SHA-256 is another one")
            return path
        except RequestException as error:
            said = type(error).__name__ if error.response is None else str(error.response.status_code)
        except ValueError as error:
            said = str(error)
        except OSError as error:
            raise OSError(f"the weights {name!r} cannot be saved in {cache}: {error}") from None
        problems.append(f"{address}: {said}")
    said = f"{'; '.join(problems)}. If you have the file, save it as {path}."
    raise OSError(f"the weights {name!r} cannot be downloaded: {said}")
