"""The documentation site: built without a warning, no dead link, a page for each public name."""

from __future__ import annotations

import html.parser
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import mlx_unpool

ROOT = Path(__file__).parent.parent


class Page(html.parser.HTMLParser):
    """What a page of HTML refers to, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.links += [values[name] for name in ("href", "src") if values.get(name)]
        self.anchors |= {values.get("id", "")}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "html"
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "."]
    result = subprocess.run([*sphinx, folder], cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    return folder


def test_every_link_leads_somewhere_and_every_public_name_has_a_page(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
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
    for name in mlx_unpool.__all__:
        page = pages[site / f"docs/reference/mlx_unpool.{name}.html"]
        assert f"mlx_unpool.{name}" in page.anchors


def test_the_picture_of_unpooling_shows_what_the_library_computes():
    sys.path.append(str(ROOT / "docs"))
    import draw_unpooling

    assert draw_unpooling.svg() == (ROOT / "docs" / "unpooling.svg").read_text()
