"""The files of a model: read, written in one step, and uploaded to the Hugging Face Hub."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from huggingface_hub import HfApi, ModelCard, ModelCardData, snapshot_download
from pydantic_core import from_json

from mlx_unpool.porting.messages import cut, warn

from .about import About, ConfigFile, naming
from .files import CHECKSUM, load_arrays, save_arrays, write_file
from .published import PUBLISHED

WEIGHTS, CONFIG = "model.safetensors", "config.json"
# Licences with an identifier on the Hub; all others are "other" with a name and a link.
LICENCES = ("apache-2.0", "mit", "bsd-3-clause", "bsd-2-clause", "cc0-1.0", "cc-by-4.0", "gpl-3.0")


def read_config(file: Path, metadata: Mapping[str, str]) -> ConfigFile:
    """The content of config.json for weights with this metadata, or that in the metadata.

    config.json, which somebody may have edited, is used if it has the checksum of the weights, or if the
    weights have no configuration.
    """
    own, tag = metadata.get("config.json"), metadata.get(CHECKSUM)
    if own is not None and not file.is_file():
        return ConfigFile.model_validate_json(own)
    try:
        content: Any = from_json(file.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        hint = f" Correct or delete it: {WEIGHTS} contains the configuration as well." * (own is not None)
        raise ValueError(f"it is not valid JSON: {error}.{hint}") from None
    saved = content.get("saved") if isinstance(content, dict) else None
    if own is not None and saved != tag:  # a process is saving a model, or was killed meanwhile
        warn(
            f"{file} is ignored, because it was not saved with {WEIGHTS}, which contains the configuration. "
            "If you did not edit it, delete it; saving the model replaces it."
        )
        return ConfigFile.model_validate_json(own)
    return ConfigFile.model_validate(content)


def hub_folder(name: str, **options: Any) -> Path:
    """The folder of a repository on the Hugging Face Hub, downloaded if necessary."""
    nothing = f"There is no folder {name}"
    if Path(name).is_file() or not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        known = ", ".join(PUBLISHED)
        raise ValueError(
            f"{nothing}. Pass a folder, owner/name on the Hugging Face Hub, or published weights: {known}."
        )
    try:
        return Path(snapshot_download(name, allow_patterns=[CONFIG, WEIGHTS, "LICENSE"], **options))
    except OSError as error:
        raise OSError(f"{nothing}, and the Hugging Face Hub says: {error}") from error


def read_folder(folder: Path) -> tuple[dict[str, mx.array], dict[str, str], ConfigFile, str]:
    """The weights in a folder, their metadata, the content of config.json and the text of the licence."""
    if not (folder / WEIGHTS).exists():
        inside = [str(path.parent) for path in sorted(folder.glob(f"*/{WEIGHTS}"))]
        hint = f": did you mean {cut(inside, 3, ' or ')}?" if inside else ""
        raise FileNotFoundError(f"There is no {WEIGHTS} in the folder {folder}{hint}")
    with naming(folder / WEIGHTS):
        weights, metadata = load_arrays(folder / WEIGHTS)
    with naming(folder / CONFIG):
        config = read_config(folder / CONFIG, metadata)
    licence, path = metadata.get("LICENSE", ""), folder / "LICENSE"
    if "config.json" not in metadata and path.is_file():
        with naming(path):
            licence = path.read_text(encoding="utf-8")
    return weights, metadata, config, licence


def write_folder(
    folder: Path, weights: dict[str, mx.array], config: ConfigFile, card: str, licence: str
) -> None:
    """Write the files of a model; see ``Model.save_pretrained``."""
    path, content = folder / WEIGHTS, config.model_dump(exclude={"saved"})
    metadata = {"format": "mlx", "config.json": json.dumps(content), "LICENSE": licence}
    replaces_model = path.exists()
    content["saved"] = save_arrays(path, weights, metadata)
    files = {"config.json": f"{json.dumps(content, indent=2)}\n", "README.md": card, "LICENSE": licence}
    for name, text in files.items():
        try:
            if text:
                write_file(path.with_name(name), text.encode())
            elif replaces_model and path.with_name(name).exists():  # a licence of the old model
                path.with_name(name).replace(path.with_name(f"{name}.old"))
        except OSError as error:
            still = f"The model is saved, in {WEIGHTS}, but {name} is still that of the model before"
            warn(f"{still}: {error}")


def upload(folder: str, repo_id: str, private: bool | None, token: str | None) -> str:
    """Upload the files of a model; see ``Model.push_to_hub``."""
    api = HfApi(token=token)
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    # The licence of a model before; uploaded files are not deleted.
    return str(api.upload_folder(repo_id=repo_id, folder_path=folder, delete_patterns="LICENSE"))


def model_card(kind: Any, config: dict[str, Any], about: About) -> ModelCard:
    """A model card for a class, its arguments and its weights; see ``Model.model_card``."""
    known, link = about.licence.lower() in LICENCES, "LICENSE" if about.licence_text else about.licence_link
    data = ModelCardData(
        library_name="mlx-unpool",
        license=about.licence.lower() if known else "other",
        license_name=None if known else about.licence,
        license_link=link or None,
        pipeline_tag="image-segmentation",
        base_model=about.base_model or None,
        tags=["mlx", "mlx-unpool", kind.model_type, *([about.plane] if about.plane else [])],
    )
    slices = f", {about.plane} slices" if about.plane else ""
    summary, notice = (inspect.getdoc(kind) or "").splitlines()[0], kind.facts.notice
    warning = re.sub(r"^.*?\.(?= |$)", r"**\g<0>**", notice) + "\n" * bool(notice)
    facts = {
        "Paper": about.paper,
        "Weights": about.source,
        "Licence of the weights": f"{about.licence} ({link or 'no copy in this folder'})",
        "Converted by": about.converter,
        "Classes": ", ".join(entry["name"] for entry in about.classes),
        "Arguments": json.dumps(config),
    }
    listed = "\n".join(f"- {name}: {value}" for name, value in facts.items() if value)
    return ModelCard(
        f"---\n{data.to_yaml()}\n---\n\n# {kind.__name__} for MLX{slices}\n\n{summary}\n\n"
        f"{warning}\n{listed}\n\n```python\nfrom mlx_unpool_zoo import from_pretrained\n\n"
        'model = from_pretrained("path/to/this/folder")  # arrays are channels last\n'
        f"```\n\n## Citation\n\n```bibtex\n{kind.facts.citation.strip()}\n```\n"
    )
