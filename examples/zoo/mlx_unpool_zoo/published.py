"""Weights that others published: downloaded from their authors, checked by a digest and converted.

Before an entry is added, predictions of the converted model are compared with those of the authors' network.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pooch
from huggingface_hub import constants
from requests import RequestException

import mlx_unpool

from .pytorch import read_checkpoint


@dataclasses.dataclass(frozen=True)
class Published:
    """A file with weights.

    Attributes:
        addresses: Where the authors and their mirrors offer the file; tried in this order.
        sha256: The digest of the file.
        source, licence, licence_link: What the model card says about the weights.
    """

    addresses: tuple[str, ...]
    sha256: str
    source: str
    licence: str
    licence_link: str


_MEDIAPIPE = "https://storage.googleapis.com/mediapipe-assets/"
PUBLISHED = {  # by name, which is the type of the model
    "hair": Published(
        (
            f"{_MEDIAPIPE}hair_segmentation.tflite",
            f"{_MEDIAPIPE}models/hair_segmentation.tflite?generation=1782183352625668",
        ),
        "d2c940c4fd80edeaf38f5d7387d1b4235ee320ed120080df67c663e749e77633",
        f"MediaPipe ({_MEDIAPIPE}hair_segmentation.tflite); the licence is that of MediaPipe's repository",
        "Apache-2.0",
        "https://github.com/google-ai-edge/mediapipe/blob/master/LICENSE",
    )
}


def published_folder(name: str, cache_dir: str | Path | None, local_files_only: bool) -> Path:
    """The folder of a model with published weights, which are downloaded and converted at the first call.

    It is in ``cache_dir``, the folder of the variable MLX_UNPOOL_CACHE, or the user's folder for caches.

    Raises:
        OSError: If the weights can be neither read nor downloaded, or the folder cannot be written.
    """
    from .model import from_pytorch  # which imports this module

    cache = Path(cache_dir or os.environ.get("MLX_UNPOOL_CACHE") or pooch.os_cache("mlx_unpool"))
    entry = PUBLISHED[name]
    folder = cache / f"{name}-{entry.sha256[:8]}-{mlx_unpool.__version__}"
    if not (folder / "model.safetensors").is_file():
        file = downloaded(name, cache, local_files_only or constants.HF_HUB_OFFLINE)
        about = {"source": entry.source, "licence": entry.licence, "licence_link": entry.licence_link}
        model = from_pytorch(name, read_checkpoint(file))
        model.about = model.about.model_copy(update=about)
        model.save_pretrained(folder)
        print(f"{name}: from {entry.source}, {entry.licence} ({entry.licence_link})", file=sys.stderr)
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
        loader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=30)
        try:
            pooch.retrieve(address, f"sha256:{entry.sha256}", path.name, cache, downloader=loader)
            return path
        except RequestException as error:
            response = error.response
            said = f"{response.status_code} {response.reason}" if response else type(error).__name__
        except ValueError:
            said = "the file was changed: it has another SHA-256"
        except OSError as error:
            raise OSError(f"the weights {name!r} cannot be saved in {cache}: {error}") from None
        problems.append(f"{address}: {said}")
    raise OSError(f"the weights {name!r} cannot be downloaded: {'; '.join(problems)}.")
