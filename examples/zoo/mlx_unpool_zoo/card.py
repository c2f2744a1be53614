"""Model cards for the Hugging Face Hub."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import Model

# Licences with an identifier on the Hub; all others are "other" with a name and a link.
KNOWN = ("apache-2.0", "mit", "bsd-3-clause", "bsd-2-clause", "cc0-1.0", "cc-by-4.0", "gpl-3.0")


def model_card(model: Model, parameters: int) -> str:
    """A model card with the Hub's metadata and all facts that a user of the weights needs."""
    about, cls = model.about, type(model)
    title = f"{cls.__name__} for MLX" + (f", {about.plane} slices" if about.plane else "")
    names = ", ".join(entry["name"] for entry in about.classes) or "not named"
    arguments = "\n".join(f"- `{name}`: {value}" for name, value in model.config.items())
    copy = (
        "[LICENSE](LICENSE)"
        if about.licence_text
        else about.licence_link or "no copy in this folder"
    )
    parts = [
        f"---\n{metadata(model)}\n---",
        f"# {title}",
        (inspect.getdoc(cls) or "").splitlines()[0],
    ]
    if cls.medical:
        parts.append(
            "**Not for clinical use.** For research only; not approved as a medical device."
        )
    facts = [
        f"- Paper: {about.paper}",
        f"- Weights: {about.source}",
        f"- Plane: {about.plane}" if about.plane else "",
        f"- Licence of the weights: {about.licence} ({copy})",
        f"- Converted by: {about.converter}" if about.converter else "",
        f"- Parameters: {parameters:,}",
        f"- Input: {json.dumps(about.input)}",
        f"- Classes: {names}",
    ]
    parts.append("\n".join(fact for fact in facts if fact))
    parts.append(
        "```python\n"
        "from mlx_unpool_zoo import from_pretrained  # pip install 'mlx-unpool[zoo]'\n\n"
        'model = from_pretrained("path/to/this/folder")  # arrays are channels last\n'
        "```"
    )
    parts.append(f"Arguments of the model:\n\n{arguments}")
    if cls.citation:
        parts.append(f"## Citation\n\n```bibtex\n{cls.citation.strip()}\n```")
    return "\n\n".join(parts) + "\n"


def metadata(model: Model) -> str:
    """The metadata of a model card, in YAML."""
    about = model.about
    known = about.licence.lower() in KNOWN
    lines = ["library_name: mlx-unpool", f"license: {about.licence.lower() if known else 'other'}"]
    if not known:
        lines.append(f"license_name: {json.dumps(about.licence)}")
    if about.licence_text or about.licence_link:
        lines.append(f"license_link: {'LICENSE' if about.licence_text else about.licence_link}")
    if model.segments:
        lines.append("pipeline_tag: image-segmentation")
    if about.base_model:
        lines.append(f"base_model: {about.base_model}")
    tags = ["mlx", "mlx-unpool", model.model_type, *([about.plane] if about.plane else [])]
    return "\n".join([*lines, f"tags: [{', '.join(tags)}]"])
