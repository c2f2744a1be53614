"""The site builds without a warning, no link is dead, pages are described, and the reference is complete."""

import ast
import html.parser
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import mlx.core as mx
import mlx_unpool_zoo
import pytest

import mlx_unpool

ROOT = Path(__file__).parent.parent
PACKAGES = mlx_unpool, mlx_unpool_zoo
FUNCTIONS = [name for name in mlx_unpool.__all__ if re.fullmatch(r"[a-z_]+\dd", name)]
pytest.importorskip("sphinx")
pytestmark = [pytest.mark.external, pytest.mark.sphinx]


class Page(html.parser.HTMLParser):
    """The links, anchors, pictures and description of a page of HTML."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.pictures: list[str] = []
        self.about: dict[str, str] = {}
        self.text = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.links += [values[name] for name in ("href", "src") if values.get(name)]
        self.anchors |= {values.get("id", "")}
        self.pictures += [values.get("alt", "")] * (tag == "img")
        name = values.get("name") or values.get("property") or values.get("rel") or ""
        self.about |= {name: values.get("content") or values.get("href") or ""}

    def handle_data(self, data: str) -> None:
        self.text += data


def markdown():
    folders = "", "docs", "metal", "benchmarks", "examples", "examples/deploy", "tests/metal"
    return [path for folder in folders for path in (ROOT / folder).glob("*.md")]


def rows_at_a_glance():
    """The names, descriptions and arguments in the tables of docs/README.md, by package."""
    _, *parts = re.split("\n##+ The .* at a glance\n", (ROOT / "docs/README.md").read_text())
    for package, part in zip(PACKAGES, parts, strict=True):
        for row in re.findall(r"^\| `.*", part, re.MULTILINE):
            names, about, arguments = (cell.strip(" `") for cell in row.strip("|").split("|"))
            yield package, names.split("`, `"), about, arguments


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "html"
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "."]
    result = subprocess.run([*sphinx, folder], cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_link_leads_somewhere(site, pages):
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue  # to another site
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = pages[target].anchors if target in pages else {parts.fragment}
            if not target.is_file() or parts.fragment not in anchors:
                dead.append((str(path.relative_to(site)), link))
    assert not dead
    project = (ROOT / "pyproject.toml").read_text()
    forms = set(re.findall('^(?:Repository|Issues) = "(.*)"$', project, re.MULTILINE))
    forms = {link + "/new/choose" * link.endswith("issues") for link in forms}
    assert forms <= set(pages[site / "index.html"].links)


def test_links_between_markdown_files_lead_to_headings_on_github():
    def anchor(heading):
        return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")

    for path in [ROOT / "llms.txt", *markdown()]:
        text = path.read_text().replace("https://github.com/mlx-unpool/mlx-unpool/blob/main", str(ROOT))
        for link, fragment in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", text):
            target = path.parent / link if link else path
            assert target.exists(), (path.name, link)
            if fragment and target.suffix == ".md":
                headings = re.findall("^#+ (.*)", target.read_text(), re.MULTILINE)
                assert fragment in map(anchor, headings), (path.name, link, fragment)


def test_warnings_in_boxes_are_marked_as_github_and_the_site_need_it():
    lines = [(path.name, line) for path in markdown() for line in path.read_text().splitlines()]
    marked = [(name, line) for name, line in lines if re.search(r"\[![A-Z]+\]", line)]
    assert not [(name, line) for name, line in marked if not re.fullmatch(r"> \[![A-Z]+\]", line)]
    assert not [(name, line) for name, line in lines if re.match(r"[^|`]* > [a-z`]", line)]


def test_the_tables_at_a_glance_are_complete():
    found = {package: [] for package in PACKAGES}
    rows = list(rows_at_a_glance())
    assert len(rows) <= 30
    for package, names, about, arguments in rows:
        found[package] += names
        assert len(about) > 10, names
        for name in names:
            parameters = dict(inspect.signature(getattr(package, name)).parameters) if arguments else {}
            given = ast.parse(f"def f({arguments}): ...").body[0].args
            positional = [argument.arg for argument in given.args]
            assert list(parameters)[: len(positional)] == positional
            keywords = [argument.arg for argument in given.kwonlyargs]
            assert all(parameters[keyword].kind is inspect.Parameter.KEYWORD_ONLY for keyword in keywords)
            defaults = [*given.defaults, *(default for default in given.kw_defaults if default)]
            for argument, default in zip(reversed(positional + keywords), reversed(defaults)):
                assert parameters[argument].default == ast.literal_eval(default), (name, argument)
    for package in PACKAGES:
        assert sorted(found[package]) == sorted({*package.__all__} - {"__version__"})


def test_every_name_has_a_page_with_its_source_and_is_linked(site, pages):
    glance = pages[site / "docs/README.html"].links
    titles = []
    for package, word in [(each, word) for each in PACKAGES for word in each.__all__]:
        name, thing = f"{package.__name__}.{word}", getattr(package, word)
        if isinstance(thing, (str, list, dict)) or thing is mlx_unpool_zoo.About:
            continue  # data, which docs/zoo.md describes
        page = pages[site / f"docs/reference/{name}.html"]
        anchor = name if not inspect.ismodule(thing) else f"module-{name}"
        assert anchor in page.anchors
        assert f"reference/{name}.html#{anchor}" in glance
        assert inspect.ismodule(thing) or "[source]" in page.text or inspect.ismethod(thing)
        titles.append(re.findall(r"<h1>(.*?)<", (site / f"docs/reference/{name}.html").read_text()))
    assert len(titles) == len({title for (title,) in titles})
    shown = {path: page.text for path, page in pages.items() if "_modules" not in path.parts}
    assert not [path for path, text in shown.items() if re.search(r":\w+:`", text)]  # roles
    assert not [name for name in mlx_unpool.__all__ if ":`" in inspect.getdoc(getattr(mlx_unpool, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_links_to_its_layer_whose_page_has_all_sections(pages, site, name):
    title = "".join(word[0].upper() + word[1:] for word in name.split("_"))
    function, layer = (pages[site / f"docs/reference/mlx_unpool.{each}.html"] for each in (name, title))
    assert f"mlx_unpool.{title}.html#mlx_unpool.{title}" in function.links
    sections = "Shape Example See.also Parameters Example __call__ Parameters Returns Return.type Raises"
    assert re.search(r"\b.*?\n".join(sections.split()), layer.text, re.DOTALL)


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("install, license, licence", "index"),
        ("speed", "docs/benchmarks"),
        ("mac, m1, vmap, backend", "docs/guarantees"),
        ("output_size, return_indices, channels_first, half precision, errors", "docs/indices_and_sizes"),
        ("keras", "docs/porting"),
        ("finetune", "docs/fine_tuning"),
        ("segnet", "docs/reference/mlx_unpool_zoo.SegNet"),
        ("quicknat", "docs/reference/mlx_unpool_zoo.QuickNAT"),
        ("max_unpool2d", "docs/reference/mlx_unpool.max_unpool2d"),
        ("replace max pools", "docs/reference/mlx_unpool.replace_max_pools"),
    ],
)
def test_the_search_lists_the_right_page_for_words_of_users(site, words, page):
    text = (site / "searchindex.js").read_text()
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    for word in words.split(", "):
        found = {number for number, _, _ in index["indexentries"].get(word, [])}
        for title, places in index["alltitles"].items():
            found |= {number for number, _ in places} if word in title.lower() else set()
        assert page in [index["docnames"][number] for number in found], word


def test_every_page_is_described_and_has_one_address(site, pages):
    assert not (site / "README.html").exists()  # it is index.html
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        if name.startswith("_modules") or name in ("genindex.html", "search.html"):
            continue
        assert len(page.about["description"]) > 30, name
        assert (ROOT / page.about["edit"].partition("/edit/main/")[2]).is_file(), name
        assert page.about["canonical"].endswith(f"/{name}")
        assert (site / page.about["og:image"].partition("/mlx-unpool/")[2]).is_file()
        described = [text for text in page.pictures if text != "Logo"]  # furo's, beside the name
        assert not [text for text in described if len(text) <= 40], name


def test_the_picture_of_unpooling_shows_what_the_library_computes():
    picture = (ROOT / "docs" / "unpooling.svg").read_text()
    numbers = [int(number) for number in re.findall(r">(\d+)</text>", picture)]
    x = mx.array(numbers[:16]).reshape(1, 4, 4, 1)
    values, indices = mlx_unpool.max_pool2d(x, 2, return_indices=True)
    full = mlx_unpool.max_unpool2d(values, indices, 2)
    assert numbers[16:] == [n for array in (values, indices, full) for n in array.flatten().tolist()]


def test_llms_txt_stands_at_the_root_of_the_site_and_its_example_runs(site):
    text = (site / "llms.txt").read_text()
    assert text == (ROOT / "llms.txt").read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        names: dict = {}
        exec(block, names)
        assert names["y"].shape == names["x"].shape
    mentioned = set(re.findall(r"\w+", text))
    missing = [name for name in mlx_unpool.__all__ if not {name, re.sub("[23]d$", "1d", name)} & mentioned]
    assert not [name for name in missing if not re.match("(?i)(adaptive|fractional)", name)]
