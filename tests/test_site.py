"""The documentation site is built without a warning, and no link in it leads nowhere."""

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
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name == "id" and value:
                self.anchors.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "html"
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "."]
    result = subprocess.run([*sphinx, folder], cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    return folder


def test_every_link_leads_somewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    dead, followed = [], 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue  # elsewhere
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            followed += 1
            missing = (
                parts.fragment and target in pages and parts.fragment not in pages[target].anchors
            )
            if not target.is_file() or missing:
                dead.append((str(path.relative_to(site)), link))
    assert not dead
    assert followed > 500


def test_all_pages_are_there_and_the_first_one_leads_to_them(site):
    first = Page(site / "README.html").links
    for page in (
        "examples/notebooks/first_tour",
        "examples/notebooks/segmentation_2d",
        "examples/notebooks/volumes_3d",
        "examples/README",
        "examples/deploy/README",
        "docs/api",
        "docs/porting",
        "docs/reliability",
        "docs/transforms",
        "docs/zoo",
        "benchmarks/RESULTS",
        "benchmarks/TRAFFIC",
        "benchmarks/ZOO",
        "CONTRIBUTING",
        "CHANGELOG",
    ):
        assert f"{page}.html" in first


def test_every_public_name_is_described(site):
    anchors = Page(site / "docs" / "api.html").anchors
    assert {f"mlx_unpool.{name}" for name in mlx_unpool.__all__} <= anchors


def test_notebooks_show_their_pictures(site):
    for path in (ROOT / "examples" / "notebooks").glob("*.ipynb"):
        links = Page(site / "examples" / "notebooks" / f"{path.stem}.html").links
        assert sum("_images" in link for link in links) >= 3, path.stem
