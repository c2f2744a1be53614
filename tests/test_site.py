"""The site builds without a warning, no link is dead, pages are described; generated text is up to date."""

import html.parser
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import mlx.core as mx
import pytest

import mlx_unpool

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "docs"))
pytestmark = pytest.mark.sphinx


class Page(html.parser.HTMLParser):
    """The links, anchors, pictures and description of a page of HTML."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.pictures: list[str] = []
        self.about: dict[str, str] = {}
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.links += [values[name] for name in ("href", "src") if values.get(name)]
        self.anchors |= {values.get("id", "")}
        self.pictures += [values.get("alt", "")] * (tag == "img")
        name = values.get("name") or values.get("property") or values.get("rel") or ""
        self.about |= {name: values.get("content") or values.get("href") or ""}


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


def test_every_link_leads_somewhere_and_every_public_name_has_a_page(site, pages):
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
    for name in mlx_unpool.__all__:
        page = pages[site / f"docs/reference/mlx_unpool.{name}.html"]
        assert f"mlx_unpool.{name}" in page.anchors


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("install, license, licence", "index"),
        ("speed", "docs/benchmarks"),
        ("mac, m1, vmap, backend", "docs/guarantees"),
        ("output_size, error, return_indices, channels_first, half precision", "docs/indices_and_sizes"),
        ("keras", "docs/porting"),
    ],
)
def test_the_search_lists_the_right_page_for_words_of_users(site, words, page):
    text = (site / "searchindex.js").read_text()
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    for word in words.split(", "):
        main = [index["docnames"][n] for n, _, first in index["indexentries"][word] if first]
        assert main == [page], word


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


def test_the_api_reference_on_github_is_up_to_date():
    import write_api

    assert write_api.page() == write_api.PAGE.read_text(), "run: python docs/write_api.py"


def test_the_reference_of_the_zoo_is_up_to_date_and_complete():
    import mlx_unpool_zoo as zoo
    import write_api

    page = write_api.zoo_page()
    assert page == write_api.ZOO_PAGE.read_text(), "run: python docs/write_api.py"
    headings = set(re.findall(r"^### (\w+)", page, re.MULTILINE))
    data = {"About", "CAMVID", "CEREBNET", "FASTSURFER", "MODELS", "__version__"}
    assert set(zoo.__all__) - headings == data
