"""Try a model in a web page: on photographs, or live with a camera.

    python -m mlx_unpool_zoo app                  recolours hair, with MediaPipe's network
    python -m mlx_unpool_zoo app runs/train/enet  draws the classes of any model that segments pictures

The first run with the hair network downloads its weights (0.8 MB, Apache-2.0) from Google. The page is
available on this computer only. Pictures are neither saved nor sent elsewhere. Ctrl-C ends the program.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import html
import json
import logging
import os
import signal
import sys
import threading
import time
import webbrowser
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from PIL import Image
from pydantic import BaseModel, Field

import mlx_unpool_zoo as zoo

from ..classes import not_drawn
from ..hair import squares_of
from ..hair_colour import COLOURS, brightness_of, hint_of, smoothed
from ..messages import pip_install
from .command_line import parser_of

if TYPE_CHECKING:
    from websockets.asyncio.server import Server, ServerConnection
    from websockets.http11 import Request, Response

PORTS = range(8766, 8776)  # that are tried; a browser remembers the permission for the camera by port
FILES = {"index.html": "text/html", "page.css": "text/css", "portrait.jpg": "image/jpeg"}
FILES |= dict.fromkeys(("page.js", "pictures.js"), "text/javascript")
LIMIT = 10  # seconds that a page may take to receive an answer
HAIR_PURPOSE = "Give the hair another colour, in a photograph or live with your camera."
PURPOSE = "See the class of every pixel, in a photograph or live with your camera."
OTHER = "Another model runs here now: reload this page."
POLICY = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src data:"
POLICY += "; connect-src 'self' {sockets}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {  # of every file
    "Connection": "close",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Question(BaseModel):
    """What a page sends before the pixels of a picture: red, green, blue and alpha."""

    width: int = Field(gt=0, le=65535)
    height: int = Field(gt=0, le=65535)
    follows: bool = False  # the picture before, as a frame of a camera does


class Hair:
    """What one open page asks of the hair network: masks, and how bright the hair is."""

    area = 512 * 4096  # pixels of the largest picture: 8 squares beside each other

    def __init__(self, model: zoo.HairSegmenter) -> None:
        self.model = model
        self.before: list[mx.array] = []
        self.brightness: float | None = None

    def answer(self, question: Question, picture: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
        """What the page says about the hair in a picture, and its mask, 0 to 255."""
        if not question.follows:
            self.before, self.brightness = [], None
        mask, self.before = self.model.next_mask(picture, self.before, squares=True)
        now = brightness_of(picture, mask)
        if now is not None:
            self.brightness = smoothed(self.brightness, now)
        share, squares = float((mask > 0.5).mean()), len(squares_of(*mask.shape)[1])
        found = {"share": share, "squares": squares, "hint": hint_of(share), "brightness": self.brightness}
        return found, (mask * 255).round().astype(np.uint8)


class Classes:
    """What one open page asks of a model that segments pictures: a map of their classes."""

    area = 1024**2

    def __init__(self, model: zoo.Model) -> None:
        self.model = model

    def answer(self, question: Question, picture: np.ndarray) -> tuple[dict[str, Any], np.ndarray]:
        """The share of each class in a picture, and the class of every pixel."""
        numbers = self.model.predict(Image.fromarray(picture))
        counts = np.bincount(numbers.ravel(), minlength=len(self.model.about.classes))
        return {"shares": (counts / numbers.size).tolist()}, numbers


def view_of(model: zoo.Model, path: str) -> type[Hair] | type[Classes]:
    """The kind of page for a model; gives its classes names and colours if it has none.

    Raises:
        ValueError: If the model does not segment colour or grey pictures of 8 bits into at most 256 classes.
    """
    count = model.config.get("num_classes", 0)
    if isinstance(model, zoo.HairSegmenter) and count == 2 and not model.about.input.get("side"):
        return Hair
    if not {"range", "white_level"}.isdisjoint(model.about.input):
        use = f"use python -m mlx_unpool_zoo predict {path} IMAGE"
        raise ValueError(
            f"{path} learned from images of more than 8 bits, of which a browser shows 8: {use}."
        )
    try:
        if model.config.get("dims", 2) != 2:
            raise ValueError(f"it has {model.config['dims']} dimensions.")
        if model.predict(Image.new("RGB", (64, 64))).dtype != np.uint8:
            raise ValueError(f"it has {count} classes.")
    except ValueError as error:
        message = f"{path} does not segment pictures into at most 256 classes: {error}"
        raise ValueError(message) from None
    if not model.about.classes:
        grey = [round(255 * n / max(1, count - 1)) for n in range(count)]
        model.about.classes = [{"name": str(n), "colour": [level] * 3} for n, level in enumerate(grey)]
    return Classes


def answered(view: Hair | Classes, question: Question, pixels: bytes) -> tuple[str, bytes] | tuple[str]:
    """The messages that answer a question: a JSON text and a byte for every pixel, or only an error."""
    try:
        rgba = np.frombuffer(pixels, np.uint8).reshape(question.height, question.width, 4)
        start = time.perf_counter()
        found, plane = view.answer(question, np.ascontiguousarray(rgba[..., :3]))
        found["seconds"] = time.perf_counter() - start
        return json.dumps(found), plane.tobytes()
    except (ValueError, RuntimeError, MemoryError) as error:  # a RuntimeError of MLX, for example of a kernel
        return (json.dumps({"error": str(error) or "There is not enough memory."}),)


class Page:
    """The server of the page: its files over HTTP, and a WebSocket for the questions of each open page."""

    def __init__(self, model: zoo.Model, path: str = "hair") -> None:
        self.model: Any = model
        self.view = view_of(model, path)
        mx.eval(model.parameters())  # other threads cannot evaluate what this one has begun
        # One thread for all pages: the model runs for one picture at a time.
        self.worker = ThreadPoolExecutor(1)
        self.full = False
        hair, classes = self.view is Hair, model.about.classes
        options: dict[str, Any] = {"area": self.view.area, "portrait": not model.facts.notice}
        options |= {"colours": COLOURS, "classes": [], "notDrawn": None}
        if not hair:
            options |= {"colours": {}, "classes": classes, "notDrawn": not_drawn(classes)}
        texts = {
            "title": "Recolour hair" if hair else f"Classes of {Path(path).name}",
            "purpose": HAIR_PURPOSE if hair else PURPOSE,
            "paper": " ".join(filter(None, (model.about.paper, model.facts.notice, model.facts.cpu_notice))),
            "device": str(mx.device_info().get("device_name", "CPU")),
        }
        folder = files("mlx_unpool_zoo") / "page"
        self.files = {f"/{name}": ((folder / name).read_bytes(), kind) for name, kind in FILES.items()}
        # A page that was opened before the program was started again learns whether it is still the same.
        identity = hashlib.sha256(repr([texts, options, self.files]).encode())
        weights: Any = tree_flatten(self.model.parameters())
        for _, weight in weights:
            identity.update(np.array(weight.astype(mx.float32)).data)
        self.identity = identity.hexdigest()
        texts["options"] = json.dumps(options | {"identity": self.identity})
        page, kind = self.files.pop("/index.html")
        for name, text in texts.items():
            page = page.replace(b"{%s}" % name.encode(), html.escape(text).encode())
        self.files["/"] = page, kind

    async def start(self, port: int | None) -> Server:
        """Serve the page on a port of 127.0.0.1, by default the first that is free of ten."""
        from websockets.asyncio.server import serve

        asyncio.get_running_loop().set_exception_handler(self.report)
        for number in [port] if port else PORTS:
            self.hosts = [f"127.0.0.1:{number}", f"localhost:{number}"]
            options: dict[str, Any] = {"process_request": self.file, "max_size": 4 * self.view.area}
            options |= {"compression": None, "server_header": None, "logger": logging.getLogger("page")}
            options["origins"] = [f"http://{host}" for host in self.hosts]
            try:
                return await serve(self.talk, "127.0.0.1", number, **options)
            except OSError as error:
                problem = os.strerror(error.errno or 0)
        ports = f"--port {port}" if port else f"each port from {PORTS[0]} to {PORTS[-1]}"
        raise OSError(f"{ports} cannot be used: {problem}.")

    def file(self, connection: ServerConnection, request: Request) -> Response | None:
        """The response to a request for a file, or None for a WebSocket."""
        from websockets.datastructures import Headers
        from websockets.http11 import Response

        # Another site whose name resolves to this computer sends its own name (DNS rebinding).
        if request.headers.get_all("Host") not in [[host] for host in self.hosts]:
            return connection.respond(HTTPStatus.FORBIDDEN, "Forbidden\n")
        if getattr(request, "method", "GET") != "GET":  # websockets before 17 refuses them before
            refused = connection.respond(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is allowed\n")
            refused.headers["Allow"] = "GET"
            return refused
        route = request.path.partition("?")[0]
        if route == "/talk":
            return None
        if route not in self.files:
            return connection.respond(HTTPStatus.NOT_FOUND, "Not found\n")
        body, kind = self.files[route]
        policy = POLICY.format(sockets=" ".join(f"ws://{host}" for host in self.hosts))
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), "Content-Security-Policy": policy}
        return Response(200, "OK", Headers(HEADERS | headers), body)

    async def talk(self, connection: ServerConnection) -> None:
        """Answer the questions of one open page until it is closed; its state ends with the connection."""
        from websockets.exceptions import ConnectionClosed
        from websockets.frames import CloseCode

        view, run = self.view(self.model), asyncio.get_running_loop().run_in_executor
        if connection.request is None or connection.request.path != f"/talk?{self.identity}":
            return await connection.close(CloseCode.POLICY_VIOLATION, OTHER)
        try:
            async for text in connection:
                question = Question.model_validate_json(text)
                area = question.width * question.height
                if area > view.area:
                    raise ValueError(f"pictures must have at most {view.area} pixels, but got {area}.")
                pixels = await connection.recv(decode=False)
                for answer in await run(self.worker, answered, view, question, pixels):
                    await asyncio.wait_for(connection.send(answer), LIMIT)
        except ConnectionClosed:
            pass
        except asyncio.TimeoutError:  # it does not read
            connection.transport.abort()
        except ValueError as error:  # of another program than the page; a reason has at most 123 bytes
            reason = " ".join(str(error).split()).encode("ascii", "replace")[:120].decode()
            await connection.close(CloseCode.POLICY_VIOLATION, reason)

    def report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Print one line, not a traceback per connection, if the process has too many open files."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif not self.full:
            self.full = True
            print(f"Too many connections: {error.strerror}. New ones wait.", file=sys.stderr, flush=True)


async def run(page: Page, port: int | None, browser: bool) -> None:
    """Serve the page until the process ends."""
    server = await page.start(port)
    address = f"http://{page.hosts[0]}"
    print(f"The page is at {address}. Ctrl-C ends the program.", flush=True)
    if browser:
        # It waits for a browser of the terminal, which waits for the page.
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    # Signals end the process at once, also while the model runs: there is nothing to save.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    await server.serve_forever()


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = parser_of("python -m mlx_unpool_zoo app", __doc__)
    help = "folder of a model, or name of a published one (default: hair)"
    parser.add_argument("model", nargs="?", default="hair", help=help)
    parser.add_argument("--port", type=int, help=f"default: the first that is free from {PORTS[0]}")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    arguments = parser.parse_args(words)
    if not find_spec("websockets"):
        raise ValueError(f"Not installed: websockets, of the extra [app]: {pip_install('app')}")
    if arguments.port is not None and not 0 < arguments.port < 65536:
        raise ValueError(f"--port must be 1 to 65535, but got {arguments.port}.")
    page = Page(zoo.from_pretrained(arguments.model), arguments.model)
    asyncio.run(run(page, arguments.port, not arguments.no_browser))
    return 0
