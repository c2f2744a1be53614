"""The model card of a saved model, with the metadata of the Hugging Face Hub."""

from __future__ import annotations

import inspect
import json
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from .about import About

# Licences with an identifier on the Hub; all others are "other" with a name and a link.
LICENCES = ("apache-2.0", "mit", "bsd-3-clause", "bsd-2-clause", "cc0-1.0", "cc-by-4.0", "gpl-3.0")


def model_card(kind: Any, config: dict[str, Any], about: About) -> ModelCard:
    """A model card for a class, its arguments and its weights; see ``Model.model_card``."""
    link = "LICENSE" if about.licence_text else about.licence_link
    title = f"{kind.__name__} for MLX"
    if about.plane:
        title += f", {about.plane} slices"
    summary = (inspect.getdoc(kind) or "").splitlines()[0]
    facts = {
        "Paper": kind.facts.paper,
        "Weights": about.source,
        "Licence of the weights": f"{about.licence} ({link or 'no copy in this folder'})",
        "Classes": ", ".join(entry["name"] for entry in about.classes),
        "Arguments": json.dumps(config),
    }
    lines = [f"- {name}: {value}" for name, value in facts.items() if value]
    parts = [
        f"---\n{metadata(kind, about, link).to_yaml()}\n---",
        f"# {title}",
        summary,
        emphasised(kind.facts.notice),
        "\n".join(lines),
        EXAMPLE,
        f"## Citation\n\n```bibtex\n{kind.facts.citation.strip()}\n```\n",
    ]
    return ModelCard("\n\n".join(part for part in parts if part))


EXAMPLE = """```python
from mlx_unpool_zoo import from_pretrained

model = from_pretrained("path/to/this/folder")  # arrays are channels last
```"""


def metadata(kind: Any, about: About, link: str) -> ModelCardData:
    """The entries of a card that the Hub reads."""
    licence = about.licence.lower()
    is_known = licence in LICENCES
    tags = ["mlx", "mlx-unpool", kind.model_type]
    if about.plane:
        tags.append(about.plane)
    return ModelCardData(
        library_name="mlx-unpool",
        license=licence if is_known else "other",
        license_name=None if is_known else about.licence,
        license_link=link or None,
        pipeline_tag="image-segmentation",
        tags=tags,
    )


def emphasised(notice: str) -> str:
    """A warning whose first sentence is bold."""
    first, _, rest = notice.partition(". ")
    if not rest:
        return f"**{first}**" if first else ""
    return f"**{first}.** {rest}"
