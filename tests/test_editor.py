"""Hovering a call in an editor shows every parameter and its meaning."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mlx_unpool

ROOT = Path(__file__).parent.parent
NAMES = [name for name in mlx_unpool.__all__ if re.search(r"[123]d$", name)]
SOURCE = "import mlx_unpool\n" + "\n".join(f"mlx_unpool.{name}(2)" for name in NAMES)


class LanguageServer:
    """A client of pyright's language server, which editors such as VS Code use."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "pyright.langserver", "--stdio"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.requests = 0

    def write(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        return json.loads(self.process.stdout.read(length))

    def request(self, method: str, **params: Any) -> Any:
        self.requests += 1
        self.write(method=method, params=params, id=self.requests)
        while True:
            message = self.read()
            if "method" not in message and message["id"] == self.requests:
                return message["result"]
            if "method" in message and "id" in message:  # settings: reply with defaults
                items = message["params"].get("items", [])
                self.write(id=message["id"], result=[{} for _ in items])


@pytest.fixture(scope="module")
def hovers() -> Iterator[dict[str, str]]:
    """The text that an editor shows for each name."""
    server, uri = LanguageServer(), (ROOT / "not_saved.py").as_uri()
    text_document = {"hover": {"contentFormat": ["plaintext"]}}
    folders = [{"uri": ROOT.as_uri(), "name": "root"}]
    capabilities = {"textDocument": text_document, "workspace": {"configuration": True}}
    server.request(
        "initialize", processId=None, capabilities=capabilities, workspaceFolders=folders
    )
    server.write(method="initialized", params={})
    document = {"uri": uri, "languageId": "python", "version": 1, "text": SOURCE}
    server.write(method="textDocument/didOpen", params={"textDocument": document})
    shown = {}
    for number, name in enumerate(NAMES, 1):
        position = {"line": number, "character": len("mlx_unpool.") + 1}
        found = server.request("textDocument/hover", textDocument={"uri": uri}, position=position)
        shown[name] = found["contents"]["value"]
    yield shown
    server.process.kill()
    server.process.communicate()


@pytest.mark.parametrize("name", NAMES)
def test_hovering_a_call_explains_every_parameter(name, hovers):
    signature, _, text = hovers[name].partition("\n\n")
    for parameter in inspect.signature(getattr(mlx_unpool, name)).parameters:
        assert re.search(rf"^    {parameter}: ", signature, re.MULTILINE), signature
        assert re.search(rf"^    {parameter} \(.+\): \S+", text, re.MULTILINE), text


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_the_same_text(name, hovers):
    public = getattr(mlx_unpool, name)
    documented = public.__init__ if inspect.isclass(public) else public
    text = inspect.getdoc(documented)
    assert text
    assert text.split() == hovers[name].partition("\n\n")[2].split()
