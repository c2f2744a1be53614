"""Weights that others published: downloaded from their authors and checked by a digest."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import pooch
from huggingface_hub import constants
from requests import RequestException

from .files import replacing


class Published(NamedTuple):
    """A file with weights: the addresses of its authors and mirrors, and what its card says."""

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
        source=f"MediaPipe ({_MEDIAPIPE}hair_segmentation.tflite); the licence is that of its "
        "repository",
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

# Trained networks in this package, by name.
INCLUDED = {"digits": Path(__file__).with_name("digits")}


def cache_of(cache_dir: str | Path | None = None) -> Path:
    """``cache_dir``, the folder in MLX_UNPOOL_CACHE, or one in the user's folder for caches."""
    return Path(cache_dir or os.environ.get("MLX_UNPOOL_CACHE") or pooch.os_cache("mlx_unpool"))


def file_of(name: str, entry: Published, cache: Path) -> Path:
    """Where the file of an entry is, or will be."""
    return cache / f"{name}-{entry.sha256[:8]}{Path(entry.addresses[0]).suffix}"


def downloaded(name: str, entry: Published, cache: Path, offline: bool = False) -> Path:
    """The file of an entry. It gets its name after it is complete and its digest has been checked.

    Raises:
        OSError: If the file can be neither read nor downloaded.
    """
    path = file_of(name, entry, cache)
    by_hand = f"If you have the file, save it as {path}."
    if path.is_file():
        if has_digest(path, entry):
            return path
        by_hand = f"{path} has another SHA-256: it is incomplete or another file."
    if offline or constants.HF_HUB_OFFLINE:
        raise OSError(
            f"the weights {name!r} are not in {cache}, and downloads are switched off. They are at "
            f"{entry.addresses[0]}. {by_hand}"
        )
    problems = []
    for address in entry.addresses:
        try:
            download(address, path, entry)
            return path
        except (RequestException, ValueError) as error:
            problems.append(f"{address}: {in_words(error)}")
        except OSError as error:
            raise OSError(f"the weights {name!r} cannot be saved in {cache}: {error}") from None
    raise OSError(f"the weights {name!r} cannot be downloaded: {'; '.join(problems)}. {by_hand}")


def in_words(error: Exception) -> str:
    """What went wrong in a download: a status such as 404, a kind of error, or a text."""
    if not isinstance(error, RequestException):
        return str(error)
    return type(error).__name__ if error.response is None else str(error.response.status_code)


def has_digest(path: Path, entry: Published) -> bool:
    """Whether a file has the SHA-256 of an entry."""
    return bool(pooch.file_hash(path) == entry.sha256)


def download(address: str, path: Path, entry: Published) -> None:
    """Download a file. Raise ValueError if it is another one than that of the entry."""
    with replacing(path) as partial:
        pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=30)(address, partial, None)
        if not has_digest(partial, entry):
            raise ValueError("the file was changed, its SHA-256 is another one")
