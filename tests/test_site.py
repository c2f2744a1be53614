"""The documentation site: built without a warning, no dead link, and fit to be read in a real browser.

The tests need the extra ``test-site``, on Python 3.11 or later as Sphinx does, and some need Chromium
(Debian's packages chromium and chromium-driver). Without these they are skipped, except in CI on Linux.
"""

from __future__ import annotations

import functools
import html.parser
import http.server
import itertools
import re
import shutil
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import mlx.core as mx
import pytest
from needs import needed

import mlx_unpool

ROOT = Path(__file__).parent.parent


class Page(html.parser.HTMLParser):
    """What a page of HTML refers to, the anchors that it has, its pictures and its description."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.alternatives: list[str] = []
        self.description = ""
        self.icon = False
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.links += [values[name] for name in ("href", "src") if values.get(name)]
        self.anchors |= {values.get("id", "")}
        if tag == "img":
            self.alternatives.append(values.get("alt", ""))
        if tag == "meta" and values.get("name") == "description":
            self.description = values.get("content", "")
        if tag == "link" and "icon" in values.get("rel", "").split():
            self.icon = True


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if sys.version_info < (3, 11):
        pytest.skip("the site is built with Python 3.11 or later")
    needed(None if find_spec("furo") else "Sphinx is not installed (extra 'test-site')")
    folder = tmp_path_factory.mktemp("site") / "html"
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "."]
    result = subprocess.run([*sphinx, folder], cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_link_leads_somewhere(site, pages):
    dead, followed = [], 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue  # to another site
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            followed += 1
            anchors = pages[target].anchors | {""} if target in pages else [parts.fragment]
            if not target.is_file() or parts.fragment not in anchors:
                dead.append((str(path.relative_to(site)), link))
    assert not dead
    assert followed > 500


PAGES = """
examples/notebooks/first_tour examples/notebooks/segmentation_2d examples/notebooks/volumes_3d
examples/README examples/deploy/README docs/zoo docs/replace_mlx_nn docs/porting
docs/layouts_and_sizes docs/index_formats docs/check_indices docs/export docs/messages docs/api
docs/gradients docs/transforms docs/differences docs/reliability docs/benchmarks
docs/contributors CHANGELOG
"""
FOR_CONTRIBUTORS = """
CONTRIBUTING docs/kernels docs/testing_metal benchmarks/MLX_NN benchmarks/RESULTS
benchmarks/TRAFFIC benchmarks/APPLE_GPU benchmarks/CUDA benchmarks/ZOO
"""


def test_all_pages_are_there_and_the_first_one_leads_to_them(site, pages):
    assert {f"{page}.html" for page in PAGES.split()} <= set(pages[site / "README.html"].links)


@pytest.mark.parametrize("name", mlx_unpool.__all__)
def test_every_public_name_has_a_page(site, pages, name):
    path = site / f"docs/reference/mlx_unpool.{name}.html"
    page = pages[path]
    assert f"mlx_unpool.{name}" in page.anchors
    assert any("_modules/mlx_unpool" in link for link in page.links)  # its source
    if isinstance(getattr(mlx_unpool, name), type):
        assert f"mlx_unpool.{name}.__call__" in page.anchors
    assert ("Pool" not in name and "Unpool" not in name) or ">Shape</p>" in path.read_text()


def test_names_in_code_lead_to_their_pages_here_and_elsewhere(site, pages):
    for page, link in (
        ("kernels", r"reference/mlx_unpool.use_backend.html#mlx_unpool.use_backend$"),
        ("index_formats", r"https://numpy.org/.*ravel_multi_index"),
        ("reference/mlx_unpool.max_pool2d", r".*mlx.core.array.html#mlx.core.array$"),
    ):
        assert any(re.match(link, found) for found in pages[site / f"docs/{page}.html"].links), link


def test_every_name_on_the_api_page_has_a_description(site):
    rows = re.findall(
        r"<tr class=\"row-\w+\"><td>(.*?)</td>\n<td>(.*?)</td>",
        (site / "docs/api.html").read_text(),
        re.DOTALL,
    )
    described = {re.sub(r"<.*?>", "", name): re.sub(r"<.*?>", "", text) for name, text in rows}
    assert set(described) == set(mlx_unpool.__all__)
    assert not [name for name, text in described.items() if len(text.strip()) < 20]


def test_addresses_are_links_once_the_repository_is_public(site):
    sys.path.append(str(ROOT / "docs"))
    import conf

    urls = conf.PYPROJECT["project"]["urls"]
    public = {"tool": {"site": {"repository-is-public": True}}, "project": {"urls": urls}}
    expected = {"Repository": urls["Repository"], "Issues": urls["Issues"]}
    assert conf.project_links(public) == expected
    text = (site / "README.html").read_text()
    if conf.project_links(conf.PYPROJECT):
        assert all(f'href="{url}"' in text for url in expected.values())
    else:
        assert "no public address yet" in text
        assert not [path for path in site.rglob("*.html") if urls["Repository"] in path.read_text()]


def test_contributors_have_a_page_that_leads_to_theirs(site, pages):
    linked = {Path(link).stem for link in pages[site / "docs/contributors.html"].links}
    assert {Path(page).stem for page in FOR_CONTRIBUTORS.split()} <= linked


def test_warnings_are_boxes(site):
    for page in ("README", "docs/index_formats", "docs/reference/mlx_unpool.MaxUnpool2d"):
        assert 'class="admonition warning"' in (site / f"{page}.html").read_text(), page


def test_pages_have_a_description_and_an_icon(site, pages):
    generated = ("genindex.html", "search.html", "py-modindex.html")
    for path, page in pages.items():
        if path.name not in generated and "_modules" not in path.parts:
            assert page.icon, path
            assert len(page.description) > 30, path.relative_to(site)


def test_pictures_are_described(site, pages):
    found = [(text, path) for path, page in pages.items() for text in page.alternatives]
    described = [(text, path) for text, path in found if text != "Logo"]  # furo's, beside the name
    assert not [(text, path) for text, path in described if len(text) <= 40]
    assert len(described) > 10


def test_the_picture_of_unpooling_shows_what_the_library_computes():
    sys.path.append(str(ROOT / "docs"))
    import draw_unpooling

    assert draw_unpooling.svg() == (ROOT / "docs" / "unpooling.svg").read_text()


def test_notebooks_show_their_pictures(site, pages):
    for path in (ROOT / "examples" / "notebooks").glob("*.ipynb"):
        links = pages[site / "examples" / "notebooks" / f"{path.stem}.html"].links
        assert sum("_images" in link for link in links) >= 3, path.stem


def sections(page: str) -> dict[str, str]:
    """The sections of a page by their titles."""
    parts = re.split(r"^## (.+)$", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2]))


def test_messages_are_those_of_the_page(tmp_path, monkeypatch):
    """In each section the first block of code raises the message, and the second one runs."""
    monkeypatch.chdir(tmp_path)  # for exported files
    names: dict = {}
    for title, text in sections("messages.md").items():
        (message,) = re.findall(r"```text\n(.*?)\n```", text, re.DOTALL)
        wrong, *right = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if title == "No Metal back-end" and mx.metal.is_available():
            continue
        with pytest.raises((TypeError, ValueError, RuntimeError)) as raised:
            exec(wrong, names)
        text = re.sub(r"\. Did you mean '\w+'\?", "", str(raised.value))  # Python 3.13 and later
        assert f"{raised.type.__name__}: {text}" == message
        for block in right:
            exec(block, names)


def test_there_are_at_least_six_messages_with_cause_and_remedy():
    texts = sections("messages.md")
    complete = [
        title for title, text in texts.items() if "**Cause.**" in text and "**Remedy.**" in text
    ]
    assert len(complete) >= 6
    assert set(texts) - set(complete) == {"No message: a misspelled attribute"}


@pytest.fixture(scope="module")
def address(site):
    """The site, served: a browser does not search in files."""
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Files, without a line on the screen for each."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def chromium(site):
    """A headless browser."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    needed(None if browser and driver else "needs chromium and chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with webdriver.Chrome(options, webdriver.ChromeService(driver)) as opened:
        opened.implicitly_wait(20)
        yield opened


def look(chromium, width: int, scheme: str) -> None:
    """Makes the window as wide as a screen, in a colour scheme."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


WIDTHS = "return [window.innerWidth, document.documentElement.scrollWidth]"
# Of the code blocks of a page: those that are wider than their box, and those whose letters are too small.
CLIPPED = """return [...document.querySelectorAll("pre")].filter(block =>
    block.scrollWidth > block.clientWidth + 1 || parseFloat(getComputedStyle(block).fontSize) < 11
).map(block => block.textContent.slice(0, 60))"""
# Words in code font in tables that are broken into two lines.
BROKEN_WORDS = """return [...document.querySelectorAll("td code")].filter(element =>
    /^[\\w.]{1,24}$/.test(element.textContent)
    && new Set([...element.getClientRects()].map(box => Math.round(box.top))).size > 1
).map(element => element.textContent)"""
# The contrast of text and its background, as the Web Content Accessibility Guidelines define it.
CONTRAST = """
const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
const luminance = ([r, g, b]) => [r, g, b].map(v => v / 255).map(
    v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const background = element => {
    for (let at = element; at; at = at.parentElement) {
        const colour = numbers(getComputedStyle(at).backgroundColor);
        if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
};
return [...document.querySelectorAll("article p, article li, article td, article pre span")].filter(
    element => element.textContent.trim()
).map(element => {
    const pair = [numbers(getComputedStyle(element).color), background(element)].map(luminance).sort();
    return [(Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05), element.textContent.slice(0, 40)];
}).filter(([contrast, _]) => contrast < 3)"""


def errors(chromium) -> list[dict]:
    return [entry for entry in chromium.get_log("browser") if entry["level"] == "SEVERE"]


def test_pages_are_readable_in_a_browser(site, address, chromium):
    seen = 0
    for path in sorted(site.rglob("*.html")):
        page = path.relative_to(site).as_posix()
        if page.startswith("_modules"):
            continue
        look(chromium, 1280, "light")
        chromium.get(f"{address}/{page}")
        assert not chromium.execute_script(BROKEN_WORDS), page
        chromium.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
        for width, scheme in itertools.product((1280, 390), ("light", "dark")):
            look(chromium, width, scheme)
            window, content = chromium.execute_script(WIDTHS)
            assert content <= window == width, page
            assert not chromium.execute_script(CLIPPED), page
            assert not chromium.execute_script(CONTRAST), page
        assert not errors(chromium), page
        seen += 1
    assert seen > 35


def test_these_checks_find_a_clipped_block_a_pale_text_and_an_error(address, chromium):
    look(chromium, 390, "light")
    chromium.get(f"{address}/README.html")
    chromium.get_log("browser")
    chromium.execute_script(
        "const block = document.querySelector('pre');"
        "block.style.whiteSpace = 'pre'; block.textContent = 'x'.repeat(500);"
        "document.querySelector('article p').style.color = 'rgb(250, 250, 250)';"
        "const table = document.querySelector('table');"
        "table.style = 'table-layout: fixed; width: 40px; min-width: 0';"
        'table.innerHTML = \'<td style="min-width: 0"><code style="word-break: break-all">accumulate\';'
        "const script = document.createElement('script'); script.src = '/none.js';"
        "document.body.append(script);"
    )
    assert chromium.execute_script(CLIPPED) == ["x" * 60]
    assert len(chromium.execute_script(CONTRAST)) == 1
    assert chromium.execute_script(BROKEN_WORDS) == ["accumulate"]
    chromium.execute_async_script("setTimeout(arguments[0], 500)")
    assert errors(chromium)


def search(chromium, address: str, query: str) -> list:
    """The results of a search on the site, as elements."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.wait import WebDriverWait

    look(chromium, 1280, "light")
    chromium.get(f"{address}/search.html?q={query.replace(' ', '+')}")
    status = (By.CSS_SELECTOR, "#search-results p.search-summary")
    WebDriverWait(chromium, 20).until(lambda b: "found" in b.find_element(*status).text)
    return chromium.find_elements(By.CSS_SELECTOR, "ul.search > li")


POOL_OPTIONS = [(name, "MaxPool2d") for name in ("dilation", "ceil_mode", "return_indices")]
QUERIES = [
    ("output_size", "max_unpool2d"),
    ("MaxUnpool3d", "MaxUnpool3d"),
    ("checking", "checking"),
]


def address_of(result) -> str:
    from selenium.webdriver.common.by import By

    return result.find_element(By.TAG_NAME, "a").get_attribute("href")


@pytest.mark.parametrize(("query", "expected"), QUERIES + POOL_OPTIONS)
def test_search_finds_the_entry(address, chromium, query, expected):
    first = [address_of(result) for result in search(chromium, address, query)[:12]]
    assert any(f"mlx_unpool.{expected}.html" in link for link in first), first


QUESTIONS = {
    "NCHW": "docs/layouts_and_sizes.html",
    "odd size": "docs/layouts_and_sizes.html",
    "unpool": "docs/reference/mlx_unpool.MaxUnpool2d.html",
    "MaxPool2d": "docs/reference/mlx_unpool.MaxPool2d.html",
    "gradient": "docs/gradients.html",
}


@pytest.mark.parametrize("query", QUESTIONS)
def test_search_finds_the_page_and_shows_a_part_of_it(address, chromium, query):
    from selenium.webdriver.support.wait import WebDriverWait

    first = search(chromium, address, query)[:3]
    (found, *_) = [result for result in first if QUESTIONS[query] in address_of(result)]
    # The snippet arrives after the title.
    WebDriverWait(chromium, 20).until(lambda _: len(found.text) > 100)
    snippet = found.text.partition("\n")[2]
    assert any(word.lower() in snippet.lower() for word in query.split()), snippet


FIRST_SCREEN = """const last = [...document.querySelectorAll("article section section")].find(
    section => section.id === "install").lastElementChild;
return last.textContent.includes("replace_max_pools") && last.getBoundingClientRect().bottom"""


def test_the_first_screen_has_installation_and_an_example(address, chromium):
    size = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chromium.get(f"{address}/README.html")
    assert 0 < chromium.execute_script(FIRST_SCREEN) <= 800
