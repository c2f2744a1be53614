"""The page in the browser: the server, its answers, and the page itself in Chromium."""

import asyncio
import base64
import contextlib
import http.client
import io
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx_unpool_zoo as zoo
import numpy as np
import pytest
from helpers.masks import TURNED
from helpers.programs import ROOT, call, environment, free_ports
from helpers.small_models import randomised, small_model
from mlx_unpool_zoo.commands import app
from mlx_unpool_zoo.hair_colour import brightness_of, colour_of, recoloured, table_of
from PIL import Image
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

PORTRAIT = ROOT / "examples/zoo/mlx_unpool_zoo/page/portrait.jpg"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
RGBA = np.random.default_rng(0).integers(0, 256, (40, 60, 4), np.uint8)


@contextlib.contextmanager
def served(model: zoo.Model, port: int | None = None) -> Iterator[int]:
    """Serve the page of a model in another thread; the port."""
    page, port, loop = app.Page(model), port or free_ports()[0], asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    run = lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(60)
    server = run(page.start(port))
    yield port
    loop.call_soon_threadsafe(server.close)
    run(server.wait_closed())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    page.worker.shutdown()


@pytest.fixture(scope="module")
def hair(tmp_path_factory) -> Iterator[tuple[zoo.HairSegmenter, int, Path]]:
    """A model, the port of its page, and its folder."""
    model, folder = randomised(small_model("hair")[0], all_weights=True), tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    with served(model) as port:
        yield model, port, folder


def talk(port: int, **options: Any) -> ClientConnection:
    (identity,) = re.findall(rb"identity&quot;: &quot;(\w+)", get(port, "/")[1])
    address = f"ws://127.0.0.1:{port}/talk?{identity.decode()}"
    return connect(address, origin=f"http://127.0.0.1:{port}", **options)


def send(page: ClientConnection, rgba: np.ndarray, **question: Any) -> None:
    page.send(json.dumps({"height": rgba.shape[0], "width": rgba.shape[1]} | question))
    page.send(rgba.tobytes())


def ask(page: ClientConnection, rgba: np.ndarray, **question: Any) -> tuple[dict, np.ndarray]:
    send(page, rgba, **question)
    return json.loads(page.recv()), np.frombuffer(page.recv(), np.uint8).reshape(rgba.shape[:2])


def get(port: int, path: str, *hosts: str, method: str = "GET") -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, path, skip_host=bool(hosts))
    for host in hosts:
        connection.putheader("Host", host)
    connection.endheaders()
    with contextlib.closing(connection), connection.getresponse() as response:
        return response.status, response.read(), dict(response.getheaders())


def test_masks_are_those_of_the_model(hair):
    model, port, _ = hair
    with talk(port) as page, talk(port) as other:
        frames = [RGBA, np.roll(RGBA, 1, 1) // 2]
        masks = list(model.masks((frame[..., :3] for frame in frames), squares=True))
        first, second = (brightness_of(f[..., :3], mask) for f, mask in zip(frames, masks))
        for _ in range(2):  # the mask of the frame before is not that of another page or of another video
            for number, frame in enumerate(frames):
                answer, mask = ask(page, frame, follows=number > 0)
                assert (mask == (masks[number] * 255).round()).all()
                assert answer["brightness"] == pytest.approx(first + 0.1 * number * (second - first))
                ask(other, RGBA[::-1])


@pytest.mark.parametrize("name", ["enet", "segnet", "quicknat"])  # the last one for grey pictures
def test_classes_are_those_that_the_model_predicts(name):
    model = randomised(small_model(name)[0], all_weights=True)
    with served(model) as port, talk(port) as page:
        answer, numbers = ask(page, RGBA)
        assert (numbers == model.predict(Image.fromarray(RGBA[..., :3]))).all()
        assert answer["shares"] == [(numbers == n).mean() for n in range(model.config["num_classes"])]
        assert all(entry["name"].encode() in get(port, "/")[1] for entry in model.about.classes)


HEADERS = """Connection: close
Cross-Origin-Resource-Policy: same-origin
X-Content-Type-Options: nosniff
Cache-Control: no-store
Content-Type: KIND
Content-Length: LENGTH
Content-Security-Policy: default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; \
img-src data:; connect-src 'self' ws://127.0.0.1:PORT ws://localhost:PORT; base-uri 'none'; \
form-action 'none'; frame-ancestors 'none'"""
FILES = {
    "/": "html",
    "/?x": "html",
    "/page.css": "css",
    "/page.js": "javascript",
    "/pictures.js": "javascript",
}
REFUSED = {
    403: "GET / evil.example|GET / evil.example:PORT|GET / HERE evil.example|GET / HERE HERE|GET / HERE.a",
    404: "GET /page|GET /index.html|GET /../app.py|GET //etc/passwd|GET /page.js/../../a.py|GET /%2e%2e/a.py",
    405: "POST /|PUT /|DELETE /|HEAD /|POST /talk|PUT /talk",
    426: "GET /talk",
}


def test_only_this_page_is_served_and_only_to_itself(hair):
    port, here = hair[1], f"127.0.0.1:{hair[1]}"
    for path, kind in (
        {f: f"text/{kind}" for f, kind in FILES.items()} | {"/portrait.jpg": "image/jpeg"}
    ).items():
        status, content, headers = get(port, path)
        expected = (
            HEADERS.replace("KIND", kind).replace("LENGTH", str(len(content))).replace("PORT", str(port))
        )
        assert (status, headers) == (200, dict(line.split(": ", 1) for line in expected.splitlines()))
    assert content == PORTRAIT.read_bytes()
    page = get(port, "/", f"localhost:{port}")[1]
    assert b'<noscript><p class="note">This page needs JavaScript' in page
    assert b"{" not in page.partition(b"<body")[0]  # every placeholder is replaced
    for status, requests in REFUSED.items():
        for request in requests.split("|"):
            method, path, *hosts = request.replace("HERE", here).replace("PORT", str(port)).split()
            assert get(port, path, *hosts, method=method)[0] == status, request
    with pytest.raises(OSError):  # noqa: PT011 - the kind depends on the system
        socket.create_connection(("127.0.0.2", port), 5)  # another address of this computer
    for origin in (None, "null", f"http://evil.example:{port}", "http://localhost:1", f"https://{here}"):
        with pytest.raises(InvalidStatus, match="403"), connect(f"ws://{here}/talk", origin=origin):
            pass
    for origin in (f"http://{here}", f"http://localhost:{port}"):
        address, closed = (
            f"ws://{here}/talk?other",
            pytest.raises(ConnectionClosed, match="Another model runs"),
        )
        with connect(address, origin=origin) as page, closed:
            page.recv(60)


REASONS = {  # in the close frame
    **dict.fromkeys(("{", b"\xff", "[" * 10**5), "Invalid JSON"),
    b"x" * 9 * 2**20: "too big",
    '{"height": 1}': "width Field required",
    '{"width": 0, "height": 1}': "width Input should be greater than 0",
    '{"width": 65536, "height": 1}': "width Input should be less than or equal to 65535",
    '{"width": 1449, "height": 1448}': "pictures must have at most 2097152 pixels, but got 2098152",
}


def test_wrong_questions_get_an_error_or_close_the_connection(hair, caplog, monkeypatch):
    port = hair[1]
    with talk(port) as page:
        for wrong in (RGBA[:0, :5], RGBA[:1, :1, :3]):
            send(page, wrong, height=1, width=1)
            assert "cannot reshape" in json.loads(page.recv())["error"]
        with monkeypatch.context() as patched:
            patched.setattr(zoo.HairSegmenter, "next_mask", lambda *_, **__: np.zeros(2**50))
            send(page, RGBA)
            assert "allocate" in json.loads(page.recv())["error"]
        ask(page, RGBA)  # the connection still works
    for text, reason in REASONS.items():
        with talk(port) as page:
            assert not page.protocol.extensions  # no compression
            page.send(text)
            with pytest.raises(ConnectionClosed, match=reason):
                page.recv(60)
    for request in (b"", b"GET", b"POST / HTTP/1.1\r\n\r\n", b"\xff\n\n"):  # not of a browser
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(request)
    assert get(port, "/")[0] == 200
    assert not caplog.records


def test_a_page_that_reads_nothing_is_disconnected(hair, monkeypatch):
    monkeypatch.setattr(app, "LIMIT", 0.5)
    monkeypatch.setattr(app, "answered", lambda *_: (b"x" * 2**20,))

    def send_all(page: ClientConnection) -> None:
        for _ in range(1500):  # less than the 40 seconds after which a ping without an answer ends it
            send(page, RGBA[:1, :1])
            time.sleep(1e-2)

    with talk(hair[1], max_queue=1) as page, pytest.raises(ConnectionClosed):
        send_all(page)


@contextlib.contextmanager
def program(*options: object, **variables: str) -> Iterator[tuple[subprocess.Popen, int]]:
    """Start the program, which may open 60 files; its process and port."""
    (port,) = free_ports()
    words = [sys.executable, "-m", "mlx_unpool_zoo", "app", *options, "--port", port]
    command = ["sh", "-c", 'ulimit -n 60; exec "$@"', "sh", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment() | variables, **pipes) as process:
        try:
            assert f"The page is at http://127.0.0.1:{port}." in process.stdout.readline()
            yield process, port
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_program_serves_its_browser_and_many_others_until_a_signal(number, hair):
    """It waits for a browser of the terminal, and this for the page; a signal ends it during a prediction."""
    get_page = (
        "import sys, urllib.request as r; sys.excepthook = print; print(r.urlopen('%s', timeout=20).status)"
    )
    with program(hair[2], BROWSER=f'{sys.executable} -c "{get_page}"') as (process, port):
        assert process.stdout.readline() == "200\n"
        with contextlib.ExitStack() as stack:
            for _ in range(90):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            time.sleep(2)
        with talk(port) as page:
            send(page, np.zeros((1024, 1024, 4), np.uint8))
            page.ping().wait()  # the question has arrived
            process.send_signal(number)
            with pytest.raises(ConnectionClosed):
                page.recv(60)
        assert process.wait(60) == -number
        assert re.fullmatch("Too many connections: .*\n", process.stderr.read())


def test_problems_of_the_start_are_one_line(tmp_path, monkeypatch):
    model = small_model("enet")[0]
    model.save_pretrained(tmp_path / "enet")
    small_model("cerebnet")[0].save_pretrained(tmp_path / "slices")
    zoo.SegNet(2, [4], [1], inputs=1, dims=1).save_pretrained(tmp_path / "signals")
    zoo.SegNet(257, [4], [1]).save_pretrained(tmp_path / "many")
    for name, value in (("range", [0, 4095]), ("white_level", 4095)):
        model.about.input = {name: value}
        model.save_pretrained(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLX_UNPOOL_CACHE", str(tmp_path))
    monkeypatch.setattr("mlx_unpool_zoo.published.constants.HF_HUB_OFFLINE", True)

    def check(words: str, said: str) -> None:
        result = call("app", *words.split(), "--no-browser", status=1)
        assert (len(result.stderr.splitlines()), result.stdout) == (1, "")
        assert re.search(said, result.stderr)

    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = used.getsockname()[1]
        check(f"enet --port {port}", f"--port {port} cannot be used: Address already in use")
        monkeypatch.setattr(app, "PORTS", range(port, port + 1))
        check("enet", f"each port from {port} to {port} cannot be used")
    check("enet --port 0", "--port must be 1 to 65535, but got 0")
    deep = " learned from images of more than 8 bits, of which a browser shows 8: use .* predict "
    check("range", f"range{deep}range IMAGE")
    check("white_level", f"white_level{deep}white_level IMAGE")
    check("none", "no folder .*none")
    check("slices", "slices does not segment pictures .*: ")
    check("signals", "signals does not segment pictures .*: it has 1 dimension")
    check("many", "many does not segment pictures .*: it has 257 classes")
    check("", "the weights 'hair' are not in .*, and downloads are switched off")
    monkeypatch.setitem(sys.modules, "websockets", None)
    check("enet", r"Not installed: websockets, .* pip install \"mlx-unpool\[app.*\] @ git")


# The page in a browser.

SWITCHES = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --use-fake-ui-for-media-stream --use-fake-device-for-media-stream"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Any]:
    """Chromium, with a camera that shows a film of 30 different frames."""
    if not CHROMIUM:
        pytest.skip("needs Chromium")
    sync_playwright = pytest.importorskip("playwright.sync_api").sync_playwright
    portrait, film = Image.open(PORTRAIT).resize((320, 240)), tmp_path_factory.mktemp("film") / "film.mjpeg"
    with film.open("wb") as file:
        for number in range(30):
            Image.fromarray(np.roll(portrait, 10 * number, 1)).save(file, "JPEG", quality=95)
    with sync_playwright() as playwright:
        switches = [*SWITCHES.split(), f"--use-file-for-fake-video-capture={film}"]
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=switches)
        yield started
        started.close()


@pytest.fixture
def open_page(browser) -> Iterator[Callable[..., Any]]:
    """A function that opens a page and waits for its first pictures.

    No request may leave the computer, and nothing may be in the console.
    """
    contexts, problems = [], []

    def opened(port: int, pictures: int = 1, **options: Any) -> Any:
        contexts.append(browser.new_context(**{"permissions": ["camera"]} | options))
        page, host = contexts[-1].new_page(), f"127.0.0.1:{port}/"
        page.set_default_timeout(120_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: "ERR_CONNECTION_REFUSED" in said.text or problems.append(said.text))
        own = (f"http://{host}", f"blob:http://{host}", f"ws://{host}", "data:,")
        page.on("request", lambda request: request.url.startswith(own) or problems.append(request.url))
        page.goto(f"http://{host}")
        if pictures:
            finished(page, pictures)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not problems


def until(page: Any, condition: Callable[[], bool]) -> None:
    """Wait for a condition; the policy of the page forbids Playwright's own function for this."""
    for _ in range(1200):
        if condition():
            return
        page.wait_for_timeout(100)
    raise AssertionError("it did not happen within two minutes")


def finished(page: Any, count: int) -> None:
    """Wait until so many pictures have results."""
    page.locator("figure:not(.busy)").nth(count - 1).wait_for(state="attached")


def style(element: Any, name: str, part: str | None = None) -> str:
    code = "(element, [name, part]) => getComputedStyle(element, part).getPropertyValue(name)"
    return element.evaluate(code, [name, part])


def shown(page: Any, side: str) -> np.ndarray:
    """The pixels of a canvas of the newest picture."""
    address = page.locator(f"figure {side}").first.evaluate("canvas => canvas.toDataURL()")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB"))


def downloaded(page: Any) -> tuple[str, Image.Image]:
    """The name and the content of a download of the newest picture."""
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").first.click()
    return download.value.suggested_filename, Image.open(download.value.path())


@pytest.mark.external
@pytest.mark.parametrize(
    "case", ["512x512 blue", "1100x1400 black", "700x300 blond", "1280x720 pink", "600x1500 auburn"]
)
def test_a_download_is_what_hair_py_writes(case, hair, open_page, tmp_path):
    """Sizes that are sent unchanged or reduced, in one square or several, with and without transparency."""
    size, colour = tuple(map(int, case.split()[0].split("x"))), case.split()[1]
    before = Image.open(PORTRAIT).resize(size)
    if max(size) > 4 / 3 * min(size):
        before.putalpha(Image.linear_gradient("L").resize(size))
    before.save(tmp_path / "a.b.png")
    options = "--model", hair[2], "--colour", colour, "--output", tmp_path / "expected.png"
    call("hair", tmp_path / "a.b.png", *options)
    page = open_page(hair[1])
    page.locator(f"input[title={colour}]").check()
    page.set_input_files("#files", tmp_path / "a.b.png")
    finished(page, 2)
    name, found = downloaded(page)
    assert name == "a.b-hair.png"
    pictures = [each.convert("RGBA") for each in (found, Image.open(tmp_path / "expected.png"), before)]
    assert len({each.getchannel("A").tobytes() for each in pictures}) == 1
    for ground in ("black", "white"):  # how they look on both
        behind = Image.new("RGBA", size, ground)
        made, expected, old = (np.int16(Image.alpha_composite(behind, p).convert("RGB")) for p in pictures)
        assert (np.abs(made - expected) > 2).mean() < 1e-3  # masks have 8 bits
        assert (np.abs(expected - old) > 2).any(-1).mean() > 0.05


NOT_SHOWN = {  # the start of a file, its size, and what is said
    "text.png": (b"text", 4, "It is damaged, or not a photograph."),
    "a.heic": (b"\0\0\0\x18ftypheic", 12, "This browser cannot read HEIC and TIFF. Use {} hair FILE"),
    "a.svg": (b"", 9, "It is a drawing in SVG. Save it as PNG."),
    "a.pdf": (b"", 9, "It is a PDF document. Save its pages as PNG or JPEG."),
    "no.jpg": (b"", 0, "The file is empty."),
    "film.mov": (b"", 3 * 10**8, "It is a film. Use {} hair FILE"),
    "large.png": (b"", 200_000_001, "It has more than 200 MB."),
}
DROP = """([type, name, bytes]) => {
    const all = new DataTransfer(), data = Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0));
    all.items.add(new File([data], name, { type: "image/jpeg" }));
    const options = { bubbles: true, cancelable: true, dataTransfer: all, clipboardData: all };
    const event = new (type === "paste" ? ClipboardEvent : DragEvent)(type, options);
    if (document.body.dispatchEvent(event) && type === "drop") throw Error("the browser would open it");
}"""


@pytest.mark.external
def test_photographs_of_every_kind_are_shown_upright(hair, open_page, tmp_path):
    (tmp_path / "other").mkdir()
    Image.new("RGB", (64, 32), "red").save(tmp_path / "turned.svg.jpg", exif=TURNED)
    Image.new("LA", (1, 1)).save(tmp_path / "one.png")
    Image.new("RGBA", (8, 8)).save(tmp_path / "alpha.webp")
    page, paths = open_page(hair[1]), sorted(tmp_path.glob("*.*"))
    page.set_input_files("#files", paths)
    finished(page, 1 + len(paths))
    assert page.locator("figure .name").all_inner_texts()[:-1] == [path.name for path in reversed(paths)]
    assert shown(page, ".after").shape == (64, 32, 3)
    for name, (content, size, _) in NOT_SHOWN.items():
        with (tmp_path / "other" / name).open("wb") as file:
            file.write(content)
            file.truncate(size)
    page.set_input_files("#files", [tmp_path / "other" / name for name in NOT_SHOWN])
    lines = [f"{name}: {said.format('python -m mlx_unpool_zoo')}" for name, (*_, said) in NOT_SHOWN.items()]
    until(page, lambda: page.inner_text("#message").splitlines() == lines)
    page.get_by_role("tab", name="Photographs").click()  # which must not stop a paste
    data = base64.b64encode(paths[-1].read_bytes()).decode()
    for count, kind in enumerate(("drop", "paste"), 2):
        page.evaluate(DROP, [kind, f"{kind}.jpg", data])
        finished(page, len(paths) + count)
        assert page.locator("figure .name").first.inner_text() == f"{kind}.jpg"
    page.locator("figure").first.get_by_text("Remove").click()
    assert page.locator("figure").count() == len(paths) + 2


@pytest.mark.external
def test_the_camera_is_shown_live_and_ends_with_its_tab(hair, open_page):
    page = open_page(hair[1])
    tab = lambda name: page.get_by_role("tab", name=name).click()
    tab("Camera")
    page.get_by_text("frames per second, ").wait_for()
    page.locator("[name=strength]").fill("0")
    same = "f => f.querySelector('.before').toDataURL() === f.querySelector('.after').toDataURL()"
    live, seen = page.locator("#camera figure"), set()
    assert live.locator(".before").evaluate("canvas => [canvas.width, canvas.height]") == [240, 240]
    while len(seen) < 3:  # without strength both sides are the same frame, at every time
        seen.add(live.locator(".before").evaluate("canvas => canvas.toDataURL()"))
        page.wait_for_timeout(50)
        assert len(seen) < 2 or live.evaluate(same)
    assert page.evaluate("() => (globalThis.kept = stream).active")
    tab("Photographs")
    assert not page.evaluate("kept.active")
    tab("Camera")
    until(page, lambda: page.evaluate("stream !== null && stream.active"))
    page.evaluate("stream.getTracks()[0].onended()")
    page.get_by_text("The camera was disconnected.").wait_for()
    page.evaluate("""() => {  // allowed only after the tab was left
        const get = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
        navigator.mediaDevices.getUserMedia = async (wanted) => {
            globalThis.kept = await get(wanted);
            select(tabs[0]);
            return kept;
        };
    }""")
    page.get_by_text("Start the camera").click()
    page.locator("#photograph").wait_for()
    until(page, lambda: page.evaluate("!kept.active"))
    problems = ("NotAllowed", "not allow"), ("NotFound", "No camera"), ("NotReadable", "Another program")
    for name, said in problems:
        failing = f"() => Promise.reject(new DOMException('', '{name}Error'))"
        page.evaluate(f"() => void (navigator.mediaDevices.getUserMedia = {failing})")
        tab("Photographs")
        tab("Camera")
        page.get_by_text(said).wait_for()


@pytest.mark.external
def test_classes_in_a_narrow_window_while_their_model_runs(open_page):
    model = randomised(small_model("enet")[0], all_weights=True)
    with served(model) as port:
        page = open_page(port, viewport={"width": 390, "height": 800})
        assert model.about.classes[0]["name"] in page.inner_text(".legend")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.get_by_role("slider", name="Before and after").press("Home")
        assert style(page.locator("figure"), "--split") == "0%"
        numbers = model.predict(Image.open(PORTRAIT))
        same = (shown(page, ".after") == np.asarray(Image.open(PORTRAIT))).all(-1)
        assert same[numbers == 0].mean() > 0.99  # the background is not drawn
        assert same[numbers != 0].mean() < 0.1
        page.get_by_label("Mask only").check()
        colours = np.uint8([entry["colour"] for entry in model.about.classes])
        until(page, lambda: (shown(page, ".after") == colours[numbers]).mean() > 0.99)
    page.set_input_files("#files", PORTRAIT)
    page.get_by_text("has ended. Start it again").wait_for()
    for other in (randomised(small_model("enet")[0]), randomised(zoo.HairSegmenter())):
        with served(other, port):
            page.set_input_files("#files", PORTRAIT)
            page.get_by_text("Another model runs here now: reload this page.").wait_for()
    with served(model, port):
        page.set_input_files("#files", PORTRAIT)
        finished(page, 2)


WALK = """photograph-tab, colour copper, colour another colour, strength 100, view compare, files, picture 50,
remove, download""".replace("\n", " ").split(", ")


@pytest.mark.external
def test_the_whole_page_is_used_by_keyboard(hair, open_page):
    page = open_page(hair[1])
    active = """() => { const { id, name, className, value, title } = document.activeElement;
        return id || [name || className || "picture", title || value].filter(Boolean).join(" "); }"""

    def check(key: str, names: list[str]) -> None:
        for expected in names:
            page.keyboard.press(key)
            assert page.evaluate(active) == expected

    check("Tab", WALK)
    with page.expect_download():
        page.keyboard.press("Enter")
    check("Shift+Tab", WALK[-2::-1])
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.get_by_text("Stop the camera").wait_for()
    check("Tab", [*WALK[1:5], "start"])
    page.keyboard.press("Space")
    page.get_by_text("Start the camera").wait_for()
    page.get_by_role("tab", name="Camera").focus()
    page.evaluate("() => { onkeydown = (event) => { globalThis.isKept = !event.defaultPrevented; }; }")
    page.keyboard.press("F5")
    assert page.evaluate("isKept")


@pytest.mark.external
def test_the_first_look(hair, open_page, monkeypatch):
    """The photograph before its result, one movement, and the last choice in the address."""
    gate, next_mask = threading.Event(), zoo.HairSegmenter.next_mask
    waiting = lambda *given, **named: gate.wait(60) and next_mask(*given, **named)
    monkeypatch.setattr(zoo.HairSegmenter, "next_mask", waiting)
    moves = "() => document.getAnimations().filter((each) => each.animationName === 'sweep').length"
    for motion in ("reduce", "no-preference"):
        gate.clear()
        page = open_page(hair[1], 0, reduced_motion=motion)
        page.locator("figure.busy .compare").wait_for()
        assert (shown(page, ".before") == np.asarray(Image.open(PORTRAIT))).mean() > 0.9
        gate.set()
        finished(page, 1)
        assert page.evaluate(moves) == (motion != "reduce")
    until(page, lambda: not page.evaluate(moves))
    page.locator("[title=purple]").check()
    page.locator("[name=strength]").fill("70")
    assert page.locator("[name=strength]").evaluate("slider => slider.ariaValueText") == "70 %"
    assert page.url.endswith("/#purple-70")
    page.locator("[type=color]").fill("#2fa87b")
    assert page.url.endswith("/#2fa87b-70")
    page.reload()
    finished(page, 1)
    assert page.locator("[type=color]").input_value() == "#2fa87b"
    assert page.locator("[name=strength]").input_value() == "70"


@pytest.mark.external
def test_four_colours_beside_each_other(hair, open_page):
    page, picture = open_page(hair[1]), Image.open(PORTRAIT)
    page.get_by_label("Four colours").check()
    label = "After: copper, blond, pink, purple"
    page.get_by_label(label).wait_for()
    assert style(page.locator(".compare"), "display", "::before") == "none"  # no grip
    made, mask = shown(page, ".after"), hair[0].mask(picture)
    assert np.abs(np.int16(downloaded(page)[1].convert("RGB")) - made).mean() < 12  # JPEG
    brightness, small = brightness_of(np.asarray(picture), mask), np.asarray(Image.fromarray(mask).reduce(2))
    half = np.asarray(picture.resize((256, 256), Image.Resampling.BOX))
    for number, name in enumerate(label[7:].split(", ")):
        part = made[256 * (number // 2) :, 256 * (number % 2) :][:230, :256]
        expected = recoloured(half, small, table_of(colour_of(name), brightness))[:230].astype(int)
        assert np.abs(part - expected).mean() < 4


@pytest.mark.external
def test_what_goes_wrong_is_said(hair, open_page, monkeypatch):
    page, gate = open_page(hair[1]), threading.Event()
    none = lambda *_, **__: gate.wait(60) and (np.zeros((512, 512), np.float32), [])
    late = lambda text: page.clock.fast_forward(121_000) or page.get_by_text(text).count()
    with monkeypatch.context() as patched:
        patched.setattr(zoo.HairSegmenter, "next_mask", none)
        page.clock.install()
        page.set_input_files("#files", PORTRAIT)
        page.locator("figure.busy .compare").wait_for()
        until(page, lambda: late("The program has not answered for 120 seconds."))
        gate.set()
        page.set_input_files("#files", PORTRAIT)
        page.get_by_text("expects a face that fills much of the picture: crop it").first.wait_for()
    finished(page, 2)
    page.evaluate("workers.read.terminate()")
    page.set_input_files("#files", PORTRAIT)
    page.locator("figure.busy").wait_for()
    until(page, lambda: late("This browser has not answered for 120 seconds."))
    page.evaluate("""() => {
        globalThis.kept = Worker.prototype.postMessage;
        Worker.prototype.postMessage = function () { this.dispatchEvent(new ErrorEvent("error")); };
    }""")
    page.set_input_files("#files", PORTRAIT)
    page.get_by_text("A part of this page does not run: reload the page.").wait_for()
    page.evaluate("() => { Worker.prototype.postMessage = kept; }")
    page.set_input_files("#files", PORTRAIT)
    finished(page, 3)


@pytest.mark.external
@pytest.mark.parametrize("look", ["color_scheme: light", "color_scheme: dark", "forced_colors: active"])
def test_the_page_follows_wcag(look, hair, open_page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(hair[1], bypass_csp=True, **dict([look.split(": ")]))
    assert page.locator("#progress[role=status]").inner_text().startswith("Example: Eileen Collins, NASA: ")
    page.set_input_files("#files", Path(__file__))
    page.get_by_text("It is damaged, or not a photograph.").wait_for()
    for tab in ("Photographs", "Camera"):
        page.get_by_role("tab", name=tab).click()
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
        found = axe.run(page, options={"runOnly": tags})
        assert not found.violations_count, found.generate_report()
    ground, *edges = (
        luminance(style(page.locator(selector), name))
        for selector, name in {"body": "background-color", **dict.fromkeys(EDGES, "border-top-color")}.items()
    )
    assert min(max(edge, ground) / min(edge, ground) for edge in edges) >= 3, edges
    for one, other in (("[title=black]", "[title=blue]"), ("[aria-selected=true]", "[aria-selected=false]")):
        assert style(page.locator(one), "background") != style(page.locator(other), "background")


EDGES = ("[title=black]", "[title=blond]", ".drop", "[role=tablist]", "#start")


def luminance(colour: str) -> float:
    """The relative luminance of a colour rgb(...), plus the 0.05 of WCAG's contrast."""
    values = np.float64(re.findall(r"\d+", colour)[:3]) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722] + 0.05
