"""The site builds without warnings or dead links; the reference is complete and described."""

import inspect
import operator
import re
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import mlx_unpool_zoo
import pytest

import mlx_unpool
from mlx_unpool import porting

ROOT = Path(__file__).parent.parent
PACKAGES = mlx_unpool, porting, mlx_unpool_zoo
pytest.importorskip("sphinx")
pytestmark = pytest.mark.external


def markdown():
    folders = "", "docs", "metal", "benchmarks", "examples", "tests/metal"
    return [path for folder in folders for path in (ROOT / folder).glob("*.md")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "html"
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "."]
    result = subprocess.run([*sphinx, folder], cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    return folder


def test_links_between_markdown_files_lead_to_headings_on_github():
    def anchor(heading):
        return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")

    for path in [ROOT / "llms.txt", *markdown()]:
        text = path.read_text().replace(
            "https://github.com/mlx-unpool/mlx-unpool/blob/main", str(ROOT)
        )
        for link, fragment in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", text):
            target = path.parent / link if link else path
            assert target.exists(), (path.name, link)
            if fragment and target.suffix == ".md":
                headings = re.findall("^#+ (.*)", target.read_text(), re.MULTILINE)
                assert fragment in map(anchor, headings), (path.name, link, fragment)


def test_the_names_and_signatures_at_a_glance_are_those_of_the_packages():
    text = (ROOT / "docs/README.md").read_text()
    _, *parts = re.split("\n##+ The .* at a glance\n", text)
    for package, part in zip(PACKAGES, parts, strict=True):
        rows = re.findall(r"^\| `(.*?)` \| (.*) \|$", part, re.MULTILINE)
        names = [name for names, _ in rows for name in names.split("`, `")]
        assert sorted(names) == sorted({*package.__all__} - {"__version__"})
        for names, about in rows:
            things = [getattr(package, name) for name in names.split("`, `")]
            members = re.findall(r"`\.(\w+)", about)
            assert not [m for m in members if not any(hasattr(thing, m) for thing in things)], names
        for name, given in re.findall(r"^([\w.]+)\((.*)\)$", part, re.MULTILINE):
            shown = inspect.Signature.from_callable(eval(f"lambda {given.replace(', *', '')}: 0"))
            parameters = inspect.signature(operator.attrgetter(name)(package)).parameters
            for parameter in shown.parameters.values():
                assert parameter.default == parameters[parameter.name].default, (name, parameter)
            positional = given.partition(", *")[0]
            assert [word.partition("=")[0] for word in positional.split(", ")] == [
                name
                for name, parameter in parameters.items()
                if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            ]


def test_every_name_has_a_page_with_its_source_and_is_linked(site):
    assert not (site / "README.html").exists()  # it is index.html
    glance = (site / "docs/README.html").read_text()
    for package, word in [(each, word) for each in PACKAGES for word in each.__all__]:
        name, thing = f"{package.__name__}.{word}", getattr(package, word)
        if isinstance(thing, (str, list, dict)) or thing is mlx_unpool_zoo.About:
            continue  # data, which docs/zoo.md describes
        text = (site / f"docs/reference/{name}.html").read_text()
        anchor = name if not inspect.ismodule(thing) else f"module-{name}"
        assert f'id="{anchor}"' in text
        assert f'href="reference/{name}.html#{anchor}"' in glance
        assert inspect.ismodule(thing) or "[source]" in text or inspect.ismethod(thing)
        assert not re.search(r":\w+:`", text)  # roles
        assert ":`" not in inspect.getdoc(thing)
        assert len(re.findall(r'<meta content="([^"]{30,})" name="description"', text)) == 1, name


HEADINGS = {"docs/guarantees": "mac vmap compile grad backend", "docs/porting": "keras onnx tflite"}
HEADINGS |= {"README": "install", "docs/fine_tuning": "finetun", "docs/benchmarks": "memory"}


@pytest.mark.parametrize("page", HEADINGS)
def test_headings_have_the_words_that_users_search_for(page):
    headings = " ".join(
        re.findall("^#+ .*", (ROOT / f"{page}.md").read_text().lower(), re.MULTILINE)
    )
    assert not [word for word in HEADINGS[page].split() if word not in headings]


def test_the_page_of_a_layer_has_its_arguments_first(site):
    text = (site / "docs/reference/mlx_unpool.MaxPool2d.html").read_text()
    text = re.sub(r"<[^>]*>", "", text[text.index("<h1>") :])
    sections = "stride Parameters padding Example Shape Example See.also "
    sections += "__call__ Parameters Returns Raises"
    assert re.search(r"\b.*?\b".join(sections.split()), text, re.DOTALL)
    assert "__init__" not in text


def test_the_picture_of_unpooling_shows_what_the_library_computes():
    picture = (ROOT / "docs" / "unpooling.svg").read_text()
    numbers = [int(number) for number in re.findall(r">(\d+)</text>", picture)]
    x = mx.array(numbers[:16]).reshape(1, 4, 4, 1)
    values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
    full = mlx_unpool.max_unpool2d(values, indices, 2)
    assert numbers[16:] == [
        n for array in (values, indices, full) for n in array.flatten().tolist()
    ]


def test_llms_txt_stands_at_the_root_of_the_site_and_its_example_runs(site):
    text = (site / "llms.txt").read_text()
    assert text == (ROOT / "llms.txt").read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        names: dict = {}
        exec(block, names)
        assert names["y"].shape == names["x"].shape
    mentioned = set(re.findall(r"\w+", text))
    missing = [
        name for name in mlx_unpool.__all__ if not {name, re.sub("[23]d$", "1d", name)} & mentioned
    ]
    assert not [name for name in missing if not re.match("(?i)(adaptive|fractional)", name)]
