"""Write docs/api.md and docs/zoo_api.md from the docstrings: python docs/write_api.py

Instead of api.md the site has a page for each name, with the same sections in the same order (conf.py).
"""

import inspect
import re
import textwrap
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import mlx_unpool

PAGE = Path(__file__).with_name("api.md")
ZOO_PAGE = PAGE.with_name("zoo_api.md")
NOTE = "<!-- Written by docs/write_api.py from the docstrings. Do not edit. -->"
ZOO_INTRODUCTION = """# Reference of the model zoo

The functions and models of `mlx_unpool_zoo`; [The model zoo](zoo.md) describes how to use them. All models
have the methods of [`Model`](#model), but `predict` needs a model with classes: the autoencoders have none.
`ENet.from_pretrained`, for example, is [`from_pretrained`](#from_pretrained) for this model only.
"""
ZOO = {  # module: title, and names; those of the models are added
    "model": (
        "Load, save and predict",
        "from_pretrained from_pytorch Model Model.from_pytorch Model.save_pretrained Model.push_to_hub "
        "Model.preprocess Model.predict",
    ),
    "segnet": ("SegNet", "SegNet.vgg16 SegNet.scores"),
    "enet": ("ENet", ""),
    "fastsurfer": ("FastSurfer", "fastsurfer.resize"),
    "quicknat": ("QuickNAT", ""),
    "autoencoders": ("Autoencoders", ""),
    "classes": ("Classes of segmentation models", "read_classes"),
    "pytorch": (
        "PyTorch weights",
        "pytorch.load_state_dict pytorch.to_state_dict pytorch.convert_state_dict pytorch.read_state "
        "pytorch.read_checkpoint pytorch.state_of pytorch.Report",
    ),
    "near_ties": ("Compare a port with its original", "compare_port Comparison pooled_indices"),
    "metrics": (
        "Metrics",
        "metrics.confusion_matrix metrics.iou metrics.class_iou metrics.boundary_f_score metrics.boundaries "
        "metrics.dice metrics.segmentation_metrics",
    ),
    "layers": ("Layers", "layers.BatchNorm"),
}
# Names of types in the annotations of the zoo, and what its page shows instead.
ALIASES = {"M": "Model", "Size": "int", "Names": "Callable", "Shapes": "dict"}
ALIASES |= dict.fromkeys(("Sizes", "Counts"), "Sequence[int]")
ALIASES |= dict.fromkeys(("Decoder", "Norm", "Format", "SEBlock", "ResizeMode", "CropPosition"), "str")
INTRODUCTION = """# API reference

A layer is an `mlx.nn.Module` without parameters, and every layer has an equivalent function. A *plane* is one
channel of one sequence, image or volume: `W`, `H` x `W` or `D` x `H` x `W` positions. Invalid arguments raise
a ValueError or TypeError that names the argument; *Raises* lists errors that depend on several arguments, on
the input or on the machine. The examples assume `import mlx.core as mx` and `import mlx_unpool`.

See also: [dtypes](indices_and_sizes.md#dtypes), [layouts](indices_and_sizes.md#nhwc-or-nchw),
[types and attributes](indices_and_sizes.md#types-and-attributes).
"""
OF_TWO = "\nEntries for 1-D to 3-D describe the 2-D version; the others have one or three spatial axes.\n"
POOLING = "Return the largest element of each window and, with `return_indices=True`, its position."
GROUPS = {  # title: what the members have in common, and the pattern of their names
    "Max pooling": (POOLING, r"(MaxPool|max_pool)\dd"),
    "Max unpooling": ("Put pooled values back at their positions.", r"(MaxUnpool|max_unpool)\dd"),
    "Adaptive and fractional max pooling": ("Pool to a given output size.", r"(?i)\w+max_?pool\dd"),
    "Models, indices, export and backends": (
        "Replace the pools of a model, check and convert indices, export, or choose a backend.",
        r"\w+",
    ),
}


def groups() -> dict[str, tuple[str, list[str]]]:
    """The introduction and the public names of each group."""
    left = sorted(mlx_unpool.__all__, key=lambda name: (name.islower(), name))
    found = {}
    for title, (introduction, pattern) in GROUPS.items():
        found[title] = introduction, [name for name in left if re.fullmatch(pattern, name)]
        left = [name for name in left if name not in found[title][1]]
    return found


def docstring(thing: Any) -> str:
    """A docstring. That of a 1-D or 3-D function gets the sections Args to Raises of the 2-D function."""
    text = inspect.getdoc(thing) or ""
    reference = re.search(r"^Arguments, results and errors are as in ``(\w+)``.*\n\n", text, re.M)
    if not reference:
        return text
    sections = inspect.getdoc(getattr(mlx_unpool, reference[1])) or ""
    sections = "Args:" + sections.partition("Args:")[2].partition("Example:")[0]
    rank = thing.__name__[-2]
    sections = re.sub(r"\bH(_out)?, ", "" if rank == "1" else r"D\1, H\1, ", sections)
    sections = re.sub(r"2(?=d`|\)``)", rank, sections)
    return text.replace(reference[0], sections)


def summary(thing: Any) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


class Type(str):
    """A type, which a signature shows without quotes."""

    __repr__ = str.__str__


def signature(name: str, thing: Any) -> str:
    """A call with names and defaults, and in the zoo types, on several lines if it is long."""

    def shown(annotation: Any) -> Any:
        if not thing.__module__.startswith("mlx_unpool_zoo") or annotation in (found.empty, None, "None"):
            return found.empty
        plain = re.sub(r"Annotated\[(\w+), .*?\]|\b(?:mx|np|nn)\.", r"\1", annotation)
        return Type(re.sub(r"\w+", lambda m: ALIASES.get(m[0], m[0]), plain))

    found = inspect.signature(thing)
    given = [p.replace(annotation=shown(p.annotation)) for n, p in found.parameters.items() if n != "self"]
    call = f"{name}{found.replace(parameters=given, return_annotation=shown(found.return_annotation))}"
    call = re.sub("(?<=[:=|]) | (?=[=|])", "\xa0", call)  # lines do not end there
    return textwrap.fill(call, 90, subsequent_indent=" " * (len(name) + 1)).replace("\xa0", " ")


def markdown(text: str) -> str:
    """A docstring as GitHub's Markdown."""

    def section(match: re.Match[str]) -> str:
        title, body = match[1], textwrap.dedent(match[2]).strip()
        if title in ("Args", "Attributes", "Returns", "Raises"):
            body = re.sub(r"\s*\n\s*" if title == "Returns" else r"\n\s+", " ", body)
            names = r"^(?:\**\w+, )*\**\w+(?= \(|:)"
            body = re.sub(names, lambda m: re.sub(r"\**\w+", r"`\g<0>`", m[0]), body, flags=re.M)
            body = re.sub(r"^", "- ", body, flags=re.MULTILINE)
        return f"**{title}**\n\n{body}\n\n"

    def table(match: re.Match[str]) -> str:
        rule, header, *rows = match[0].replace("\n" + match[1], "").splitlines()
        starts = [column.start() for column in re.finditer("=+", rule)]
        columns = [slice(*ends) for ends in zip(starts, [*starts[1:], None])]
        cells = ["| " + " | ".join(row[c].strip() for c in columns) + " |" for row in (header, *rows)]
        return "\n".join([cells[0], "|---" * len(columns) + "|", *cells[1:]])

    def box(match: re.Match[str]) -> str:
        return "> [!WARNING]\n" + re.sub(r"^ *", "> ", match[1].rstrip(), flags=re.MULTILINE) + "\n\n"

    def link(match: re.Match[str]) -> str:
        name = match[1].removeprefix("mlx_unpool.")
        known = name.partition(".")[0] in mlx_unpool.__all__
        return f"[`{name}`](#{anchor(name)})" if known else f"`{name}`"

    def page_link(match: re.Match[str]) -> str:
        title = PAGE.with_name(f"{match[1]}.md").read_text().partition("\n")[0]
        return f"[{title.strip('# ')}]({match[1]}.md)"

    indented = r"\n((?:(?:    .*)?(?:\n|$))+)"
    for pattern, replacement in (
        (r"^(=+(?:  =+)+)\n(?:.+\n)+\1", table),
        (rf"^(Args|Attributes|Shape|Returns|Raises|Example):{indented}", section),
        (rf"^Warning:{indented}", box),
        (r"^See also: ", "**See also** "),
        (r":doc:`/docs/(\w+)`", page_link),
        (r":ref:`(.+?) <dtypes>`", r"[\1](indices_and_sizes.md#dtypes)"),
        (r":\w+:`~?([\w.]+)`", link),
        (r"``((?:.|\n)+?)``", r"`\1`"),
        (r"::\n\n    (.+)\n", r":\n\n```text\n\1\n```\n"),
        (r"^(>>> (?:.+\n?)+(?:\n>>> (?:.+\n?)+)*)", lambda m: f"```pycon\n{m[1].strip()}\n```\n\n"),
    ):
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


def families(names: list[str]) -> list[list[str]]:
    """The names in groups that differ only in the number of spatial axes."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(re.sub(r"\dd$", "", name), []).append(name)
    return list(found.values())


def main_of(calls: list[str], things: list[Any]) -> Any:
    """The member of a family for two dimensions, or the first."""
    return next((thing for call, thing in zip(calls, things) if "2d" in call), things[0])


def described(calls: list[str], things: list[Any]) -> list[str]:
    """The signatures of a family and one docstring, as paragraphs of Markdown.

    The text is that of two dimensions, or of the first member. Shapes and examples are those of all members.
    """
    main = main_of(calls, things)
    text, ranks = docstring(main), "|".join(f"{call[-2]}-D" for call in calls)
    for section, prefix in (("Shape", True), ("Example", False)):
        bodies = [re.search(rf"^{section}:\n((?:    .*\n|\n)+)", docstring(t), re.M) for t in things]
        if len(things) > 1 and all(bodies):
            parts = [body[1].rstrip() for body in bodies if body]
            if prefix:
                pairs = zip(ranks.split("|"), parts)
                parts = [re.sub(r"- (?=\w)", f"- {rank}: ", part) for rank, part in pairs]
            old = bodies[things.index(main)]
            text = text.replace(old[1].rstrip(), "\n".join(parts)) if old else text
    signatures = "\n".join(map(signature, calls, things))
    if len(things) > 1:
        text = text.replace("over height and width", "over the spatial axes", 1)
    return [f"```python\n{signatures}\n```", markdown(text)]


def entries(names: list[str]) -> str:
    """A table of names, and a section for each family of them."""
    paragraphs, rows = [], []
    for family in families(names):
        things = [getattr(mlx_unpool, name) for name in family]
        titles = ", ".join(f"[`{name}`](#{name.lower()})" for name in family)
        about = re.sub("over height and width", "over the spatial axes", summary(main_of(family, things)))
        rows.append(f"| {titles} | {markdown(about)} |")
        # GitHub's anchor of the heading contains all names.
        anchors = "".join(f'<a id="{name.lower()}"></a>' for name in family) if family[1:] else ""
        paragraphs += [f"{anchors}\n\n### {', '.join(family)}", *described(family, things)]
        if isinstance(things[0], type):
            is_pool = not hasattr(things[0], "from_pool")
            call = ["pool" if is_pool else "unpool"]
            paragraphs += ["**Call**", *described(call, [things[0].__call__])]
            if not is_pool:
                methods = [f"{name}.from_pool" for name in family]
                anchors = "".join(f'<a id="{name.lower()}from_pool"></a>' for name in family)
                paragraphs += [f"{anchors}\n\n#### from_pool"]
                paragraphs += described(methods, [t.from_pool for t in things])
    return "\n\n".join(["\n".join(["| name | |", "|---|---|", *rows]), *paragraphs])


def page(members: Callable[[list[str]], str] = entries) -> str:
    """The page: an introduction and, for each group of names, what ``members`` returns."""
    parts = [f"## {title}\n\n{about}\n\n{members(names)}" for title, (about, names) in groups().items()]
    introduction = INTRODUCTION + OF_TWO if members is entries else INTRODUCTION
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join([NOTE, introduction, *parts])) + "\n"


def zoo_page() -> str:
    """The reference of the zoo, which needs its libraries."""
    import mlx_unpool_zoo as zoo

    parts = [NOTE, ZOO_INTRODUCTION]
    for module, (title, given) in ZOO.items():
        models = [kind.__name__ for kind in zoo.MODELS.values() if kind.__module__.endswith(f".{module}")]
        things = {name: attrgetter(name)(zoo) for name in [*models, *given.split()]}
        rows = [f"| [`{n}`](#{anchor(n)}) | {markdown(summary(thing))} |" for n, thing in things.items()]
        parts += [f"## {title}", "\n".join(["| name | |", "|---|---|", *rows])]
        for name, thing in things.items():
            parts += [f"### {name}", *described([name], [thing])]
            if "Args:" in str(thing.__call__.__doc__):
                parts += ["**Call**", *described(["model"], [thing.__call__])]
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(parts)) + "\n"


def anchor(name: str) -> str:
    """GitHub's anchor of a heading."""
    return name.lower().replace(".", "")


def table_of_the_site(names: list[str]) -> str:
    """A table of names with links to their pages, for Sphinx."""
    options = ".. currentmodule:: mlx_unpool\n.. autosummary::\n   :toctree: reference\n   :nosignatures:\n"
    return "\n".join(["```{eval-rst}", options, *(f"   {name}" for name in names), "```"])


def write_pages_of_the_site() -> None:
    """Write a page for each public name, and those of the zoo. A search for a name finds its page first."""
    folder = PAGE.with_name("reference")
    folder.mkdir(exist_ok=True)
    for name, text in pages_of_the_zoo().items():
        if name != "zoo_api":
            (PAGE.parent / f"{name}.md").write_text(text)
    for name in mlx_unpool.__all__:
        thing = getattr(mlx_unpool, name)
        kind, main = ("class", "! ") if isinstance(thing, type) else ("function", "")
        words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", re.sub(r"\dd$", "", name)).lower()
        lines = [".. meta::", f"   :description: {name}: {summary(thing).replace('`', '')}", ""]
        lines += [name, "=" * len(name), "", f".. index:: {main}single: {words}", ""]
        lines += [f".. auto{kind}:: mlx_unpool.{name}", ""]
        if kind == "class":
            methods = ("__call__", "from_pool") if hasattr(thing, "from_pool") else ("__call__",)
            lines += [f"   .. automethod:: {method}" for method in methods]
        (folder / f"mlx_unpool.{name}.rst").write_text("\n".join([*lines, ""]))


def pages_of_the_zoo() -> dict[str, str]:
    """The site's pages of the zoo: one for each section of zoo_api.md, and one with their tables."""
    introduction, *sections = ZOO_PAGE.read_text().split("\n## ")
    where = {anchor(n): m for m, text in zip(ZOO, sections) for n in re.findall("^### (.+)", text, re.M)}
    pages, contents = {}, [introduction]
    for module, section in zip(ZOO, sections):
        title, _, text = section.partition("\n")
        table, _, text = text.partition("\n### ")
        text = re.sub("^### (.+)", r"## \1\n```{index} \1\n```", f"### {text}", flags=re.M)
        pages[f"reference/zoo_{module}"] = f"# {title}\n\n{text}"
        contents.append(f"\n## {title}\n{table}")
    text = re.sub(r"\(#(\w+)", lambda m: f"(reference/zoo_{where[m[1]]}.md#{m[1]}", "\n".join(contents))
    return pages | {"zoo_api": "\n".join([text, "```{toctree}", ":hidden:", "", *pages, "```"])}


if __name__ == "__main__":
    PAGE.write_text(page())
    ZOO_PAGE.write_text(zoo_page())
