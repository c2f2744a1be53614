"""Load models from folders and from the Hugging Face Hub, save and upload them."""

from __future__ import annotations

import inspect
import json
import re
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from huggingface_hub import HfApi, ModelCard, ModelCardData, snapshot_download
from mlx.utils import tree_flatten
from pydantic_core import from_json
from typing_extensions import Self

from .about import MODELS, About, Configuration, naming
from .checkpoints import cut
from .conversion import Converted
from .files import CHECKSUM, load_arrays, save_arrays, write_file
from .published import PUBLISHED, published_folder

WEIGHTS = "model.safetensors"
# Licences with an identifier on the Hub; all others are "other" with a name and a link.
LICENCES = ("apache-2.0", "mit", "bsd-3-clause", "bsd-2-clause", "cc0-1.0", "cc-by-4.0", "gpl-3.0")


def configuration(file: Path, metadata: Mapping[str, str]) -> Configuration:
    """The configuration for weights with this metadata: that of config.json, or the one in the metadata.

    config.json, which somebody may have edited, is used if it has the checksum of the weights, or if the
    weights have no configuration.
    """
    own, tag = metadata.get("config.json"), metadata.get(CHECKSUM)
    if own is not None and not file.is_file():
        return Configuration.model_validate_json(own)
    try:
        content: Any = from_json(file.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        hint = f" Correct or delete it: {WEIGHTS} contains the configuration as well." * (own is not None)
        raise ValueError(f"it is not valid JSON: {error}.{hint}") from None
    saved = content.get("saved") if isinstance(content, dict) else None
    if own is not None and saved != tag:  # a process is saving a model, or was killed meanwhile
        warnings.warn(
            f"{file} is ignored, because it was not saved with {WEIGHTS}, which contains the configuration. "
            "If you did not edit it, delete it; saving the model replaces it.",
            stacklevel=3,
        )
        return Configuration.model_validate_json(own)
    if own is None and saved is not None and metadata.get("saved", saved) != saved:  # of an older version
        raise ValueError(f"it was not saved together with {WEIGHTS}.")
    return Configuration.model_validate(content)


def downloaded(name: str, **options: Any) -> Path:
    """The folder of published weights or of a repository on the Hugging Face Hub, downloaded if necessary."""
    nothing = f"There is no folder {name}"
    if name in PUBLISHED:
        return published_folder(name, options["cache_dir"], options["local_files_only"])
    if Path(name).is_file() or not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        known = ", ".join(PUBLISHED)
        raise ValueError(
            f"{nothing}. Pass a folder, owner/name on the Hugging Face Hub, or published weights: {known}."
        )
    try:
        options["allow_patterns"] = ["config.json", WEIGHTS, "LICENSE"]
        return Path(snapshot_download(name, **options))
    except OSError as error:
        raise OSError(f"{nothing}, and the Hugging Face Hub says: {error}") from error


class Stored(Converted):
    """Loading and saving of ``Model``."""

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
        """Load a model in evaluation mode, from a folder, the Hugging Face Hub, or published weights.

        Published weights, which are downloaded from their authors, are checked and converted at the first
        call; their licence and source are printed and stored in ``about``.

        Args:
            path_or_hub_id: A folder, "owner/name" on the Hub, or published weights: "hair", "relaynet".
            dtype: Type of parameters and inputs: ``"float32"``, ``"float16"``, ``"bfloat16"`` or
                ``"float64"``. Default: as in the file.
            strict: Whether the file must have exactly the parameters of the model. If False, missing ones
                get new random values and others are ignored, with a warning.
            ignore_mismatched_sizes: Whether parameters with a different shape get new random values.
            revision, token, cache_dir, local_files_only: As for ``huggingface_hub.snapshot_download``. The
                default folder for published weights is that of the environment variable MLX_UNPOOL_CACHE,
                or else ``mlx_unpool`` in the user's folder for caches.
            **arguments: Arguments of the model that replace those in ``config.json``.

        Raises:
            OSError: If there is no such repository, a download fails, or a file is missing.
            ValueError: If the folder does not contain a model of this class, the weights do not fit, or there
                is no such folder and the name is not of the form "owner/name".
        """
        folder = Path(path_or_hub_id)
        if not folder.is_dir():
            options = {"revision": revision, "token": token, "cache_dir": cache_dir}
            folder = downloaded(str(folder), local_files_only=local_files_only, **options)
        if not (folder / WEIGHTS).exists():
            inside = [str(path.parent) for path in sorted(folder.glob(f"*/{WEIGHTS}"))]
            hint = f": did you mean {cut(inside, 3, ' or ')}?" if inside else ""
            raise FileNotFoundError(f"There is no {WEIGHTS} in the folder {folder}{hint}")
        path, settings, licence = folder / WEIGHTS, folder / "config.json", folder / "LICENSE"
        with naming(path):
            weights, metadata = load_arrays(path)
        with naming(settings):
            found = configuration(settings, metadata)
            model = cls._configured(found, arguments)
        model.about.licence_text = metadata.get("LICENSE", "")
        if "config.json" not in metadata and licence.is_file():
            with naming(licence):
                model.about.licence_text = licence.read_text(encoding="utf-8")
        with naming(path):
            if metadata.get("format") == "pt":  # published for PyTorch
                weights = model.sanitize(weights, strict=strict)
            if how := found.quantization:
                nn.quantize(model, class_predicate=lambda path, _: how.get(path, False))
            model.set_weights(weights, dtype, strict, ignore_mismatched_sizes)
        return model

    @classmethod
    def _configured(cls, found: Configuration, arguments: dict[str, Any]) -> Self:
        """A new model as described by a configuration, before it is quantised."""
        if found.model_extra:
            warnings.warn(f"Unknown keys of config.json: {[*found.model_extra]}", stacklevel=3)
        kinds = {name: kind for name, kind in MODELS.items() if issubclass(kind, cls)}
        if found.model_type not in kinds:
            kind = getattr(MODELS.get(found.model_type), "__name__", "")
            raise ValueError(
                f"'model_type' must be one of {', '.join(kinds)}, but got {found.model_type!r}"
                + f": use {kind}.from_pretrained, or from_pretrained of mlx_unpool_zoo." * bool(kind)
            )
        model = kinds[found.model_type](**found.config | arguments)
        if "num_classes" in arguments:  # a new head
            found.about.pop("classes", None)
        defaults = model.about.model_dump()
        if isinstance(given := found.about.get("input", {}), dict):
            found.about["input"] = defaults["input"] | given
        model.about = About(**defaults | found.about)
        if model.about.base_model == model.names_of:  # of an older version, which set it for all models
            model.about.base_model = ""
        model.check_about()
        layers = dict(model.named_modules())
        if bad := [n for n in found.quantization if not hasattr(layers.get(n), "to_quantized")]:
            raise ValueError(f"'quantization' must name Linear layers, but got {cut(bad)}.")
        return model

    def save_pretrained(self, folder: str | Path) -> None:
        """Save the model as a folder with weights, configuration, model card and licence.

        The weights contain the configuration and the licence; the other files are for people and the Hub. A
        load always gets the old model or the new one, even if another process saves it meanwhile, or this one
        is killed. If this model has no licence text, the LICENSE of the old model is renamed to LICENSE.old.

        Raises:
            OSError: If the weights cannot be written, for example because the disk is full. The folder is
                then unchanged. If another file cannot be written, there is a warning.
            ValueError: If a weight is not finite, or ``about`` is invalid.
        """
        self.check_about()
        self.check_finite()
        about = self.about.model_dump()
        config = {"model_type": self.model_type, "config": self.config, "about": about}
        config["quantization"] = {
            name: {key: getattr(layer, key) for key in ("group_size", "bits", "mode")}
            for name, layer in self.named_modules()
            if isinstance(layer, nn.QuantizedLinear)
        }
        path, licence = Path(folder, WEIGHTS), self.about.licence_text
        metadata = {"format": "mlx", "config.json": json.dumps(config), "LICENSE": licence}
        files = {"README.md": str(self.model_card()).encode(), "LICENSE": licence.encode()}
        replaces_model = path.exists()
        config["saved"] = save_arrays(path, dict(tree_flatten(self.parameters())), metadata)
        files = {"config.json": f"{json.dumps(config, indent=2)}\n".encode()} | files
        for name, content in files.items():
            try:
                if content:
                    write_file(path.with_name(name), content)
                elif replaces_model and path.with_name(name).exists():  # a licence of the old model
                    path.with_name(name).replace(path.with_name(f"{name}.old"))
            except OSError as error:
                said = f"The model is saved, in {WEIGHTS}, but {name} is still that of the model before"
                warnings.warn(f"{said}: {error}", stacklevel=2)

    def push_to_hub(self, repo_id: str, *, private: bool | None = None, token: str | None = None) -> str:
        """Upload the model to a repository, created if necessary, and return the URL of the commit."""
        api = HfApi(token=token)
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            # The licence of a model before; uploaded files are not deleted.
            return str(api.upload_folder(repo_id=repo_id, folder_path=folder, delete_patterns="LICENSE"))

    def model_card(self) -> Any:
        """A model card with the Hub's metadata and all facts that a user of the weights needs."""
        about, known = self.about, self.about.licence.lower() in LICENCES
        link = "LICENSE" if about.licence_text else about.licence_link
        data = ModelCardData(
            library_name="mlx-unpool",
            license=about.licence.lower() if known else "other",
            license_name=None if known else about.licence,
            license_link=link or None,
            pipeline_tag="image-segmentation" if self.segments else None,
            base_model=about.base_model or None,
            tags=["mlx", "mlx-unpool", self.model_type, *([about.plane] if about.plane else [])],
        )
        slices = f", {about.plane} slices" if about.plane else ""
        summary = (inspect.getdoc(type(self)) or "").splitlines()[0]
        warning = f"**{self.notice}**\n" if self.notice else ""
        facts = {
            "Paper": about.paper,
            "Weights": about.source,
            "Licence of the weights": f"{about.licence} ({link or 'no copy in this folder'})",
            "Converted by": about.converter,
            "Classes": ", ".join(entry["name"] for entry in about.classes),
            "Arguments": json.dumps(self.config),
        }
        listed = "\n".join(f"- {name}: {value}" for name, value in facts.items() if value)
        return ModelCard(
            f"---\n{data.to_yaml()}\n---\n\n# {type(self).__name__} for MLX{slices}\n\n{summary}\n\n"
            f"{warning}\n{listed}\n\n```python\nfrom mlx_unpool_zoo import from_pretrained\n\n"
            'model = from_pretrained("path/to/this/folder")  # arrays are channels last\n'
            f"```\n\n## Citation\n\n```bibtex\n{self.citation.strip()}\n```\n"
        )
