"""The page in the browser: the server, its answers, and the page itself in Chromium."""

import asyncio
import base64
import contextlib
import functools
import http.client
import http.server
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
from itertools import product
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
    thread = threading.Thread(target=loop.run_forever)
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
    model, folder = randomised(small_model("hair")[0], all_weights=True), tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    with served(model) as port:
        yield model, port, folder


def talk(port: int, **options: Any) -> ClientConnection:
    (identity,) = re.findall(rb"identity&quot;: &quot;(\w+)", get(port, "/")[1])
    address = f"ws://127.0.0.1:{port}/talk?{identity.decode()}"
    return connect(address, origin=f"http://127.0.0.1:{port}", **options)


def ask(page: ClientConnection, rgba: np.ndarray | None = None, **question: Any) -> tuple[dict, Any]:
    if rgba is not None:
        question |= {"height": rgba.shape[0], "width": rgba.shape[1]}
    page.send(json.dumps(question))
    if rgba is not None:
        page.send(rgba.tobytes())
    answer = json.loads(page.recv())
    if rgba is None or "error" in answer:
        return answer, None
    return answer, np.frombuffer(page.recv(), np.uint8).reshape(rgba.shape[:2])


def get(port: int, path: str, *hosts: str, method: str = "GET") -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, path, skip_host=bool(hosts))
    for host in hosts:
        connection.putheader("Host", host)
    connection.endheaders()
    with contextlib.closing(connection), connection.getresponse() as response:
        return response.status, response.read(), dict(response.getheaders())


def test_masks_and_tables_are_those_of_the_model(hair):
    model, port, _ = hair
    with talk(port) as page, talk(port) as other:
        answer, mask = ask(page, RGBA, colours=["#2f6bd0", "copper"])
        expected = model.mask(RGBA[..., :3], squares=True)
        assert (mask == (expected * 255).round()).all()
        assert answer["brightness"] == brightness_of(RGBA[..., :3], expected)
        colours = map(colour_of, ("blue", "copper"))
        tables = [table_of(colour, answer["brightness"]).round().tolist() for colour in colours]
        assert answer["tables"] == tables
        assert ask(page, colours=["copper"], brightness=answer["brightness"])[0]["tables"] == tables[1:]
        frames = [np.roll(RGBA, n, 1) for n in range(2)]
        masks = [(mask * 255).round() for mask in model.masks((f[..., :3] for f in frames), squares=True)]
        for video in range(2):  # the mask of the frame before is not that of another page or of another video
            for number, frame in enumerate(frames):
                assert (ask(page, frame, frame=number)[1] == masks[number]).all(), video
                assert ask(other, RGBA[::-1], frame=0)[1] is not None


@pytest.mark.parametrize("name", ["enet", "segnet", "quicknat"])  # the last one for grey pictures
def test_classes_are_those_that_the_model_predicts(name):
    model = randomised(small_model(name)[0], all_weights=True)
    with served(model) as port:
        with talk(port) as page:
            answer, numbers = ask(page, RGBA)
            assert (numbers == model.predict(Image.fromarray(RGBA[..., :3]))).all()
            assert answer["shares"] == [(numbers == n).mean() for n in range(model.config["num_classes"])]
            assert "picture" in ask(page)[0]["error"]
        assert all(entry["name"].encode() in get(port, "/")[1] for entry in model.about.classes)


# Headers of every file.
POLICY = """default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src data:;
connect-src 'self' ws://127.0.0.1:PORT ws://localhost:PORT; base-uri 'none'; form-action 'none';
frame-ancestors 'none'"""
SAFE = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def test_only_this_page_is_served_and_only_to_itself(hair):
    port, content = hair[1], {}
    here, policy = f"127.0.0.1:{port}", " ".join(POLICY.replace("PORT", str(port)).split())
    for path in ("/", "/page.js", "/pictures.js", "/page.css", "/portrait.jpg", "/?x"):
        status, content[path], headers = get(port, path)
        assert status == 200
        assert (SAFE | {"Content-Security-Policy": policy}).items() <= headers.items()
    assert content["/portrait.jpg"] == PORTRAIT.read_bytes()
    assert b'<noscript><p class="note">This page needs JavaScript' in content["/"]
    assert b"{" not in content["/"].partition(b"<body")[0]  # every placeholder is replaced
    for path in ("/page", "/../app.py", "//etc/passwd", "/page.js/../../app.py", "/%2e%2e/app.py"):
        assert get(port, path)[0] == 404
    assert get(port, "/talk")[0] == 426
    for method, path in product(("POST", "PUT", "DELETE", "HEAD"), ("/", "/talk")):
        assert get(port, path, method=method)[0] == 405
    with pytest.raises(OSError):  # noqa: PT011 - the kind depends on the system
        socket.create_connection(("127.0.0.2", port), 5)  # another address of this computer
    evil = "evil.example"
    for hosts in ([evil], [f"{evil}:{port}"], ["127.0.0.1"], [here, evil], [here, here], [f"{here}.a"]):
        assert get(port, "/", *hosts)[0] == 403
    for origin in (None, "null", f"http://{evil}:{port}", "http://localhost:1", f"https://{here}"):
        with pytest.raises(InvalidStatus, match="403"), connect(f"ws://{here}/talk", origin=origin):
            pass
    for origin in (f"http://{here}", f"http://localhost:{port}"):
        with connect(f"ws://{here}/talk", origin=origin):
            pass


REASONS = {  # in the close frame
    **dict.fromkeys(("{", b"\xff", "[" * 10**5), "Invalid JSON"),
    '{"brightness": NaN}': "brightness Input should be",
    **{"[]": "should be an object", "3": "should be an object", b"x" * 9 * 2**20: "too big"},
    '{"width": 65536, "height": 1}': "width Input should be less than or equal to 65535",
    '{"width": 1449, "height": 1448}': "pictures must have at most 2097152 pixels, but got 2098152",
    json.dumps({"colours": ["x" * 101]}): "colours.0 String should have at most 100 characters",
    json.dumps({"colours": ["red"] * 5}): "colours List should have at most 4 items",
}


def test_wrong_questions_get_an_error_or_close_the_connection(hair, caplog):
    port = hair[1]
    with talk(port) as page:
        for wrong in (RGBA[:0, :5], RGBA[:1, :1, :3]):
            page.send(json.dumps({"height": 1, "width": 1}))
            page.send(wrong.tobytes())
            assert "cannot reshape" in json.loads(page.recv())["error"]
        assert "'colour' must be" in ask(page, RGBA, colours=["nice"])[0]["error"]
        assert ask(page, RGBA)[1] is not None  # the connection still works
    for text, reason in REASONS.items():
        with talk(port) as page:
            assert not page.protocol.extensions  # no compression
            page.send(text)
            with pytest.raises(ConnectionClosed, match=reason):
                page.recv(60)
    address, origin = f"ws://127.0.0.1:{port}/talk?other", f"http://127.0.0.1:{port}"
    with connect(address, origin=origin) as page, pytest.raises(ConnectionClosed, match="Another model runs"):
        page.recv(60)
    for request in (b"", b"GET", b"POST / HTTP/1.1\r\n\r\n", b"\xff\n\n"):  # not of a browser
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(request)
    assert get(port, "/")[0] == 200
    assert not caplog.records


def test_a_lack_of_memory_is_an_answer(hair, monkeypatch):
    monkeypatch.setattr(zoo.HairSegmenter, "mask", lambda *_, **__: np.zeros(2**50))
    with talk(hair[1]) as page:
        assert "allocate" in ask(page, RGBA)[0]["error"]
        monkeypatch.undo()
        assert ask(page, RGBA)[1] is not None


def test_a_page_that_reads_nothing_is_disconnected(hair, monkeypatch):
    monkeypatch.setattr(app, "LIMIT", 0.5)

    def send(page: ClientConnection) -> None:
        for _ in range(15_000):  # less than the 40 seconds after which a ping without an answer ends it
            page.send(json.dumps({"colours": ["red"] * 4}))
            time.sleep(1e-3)

    with talk(hair[1], max_queue=1) as page, pytest.raises(ConnectionClosed):
        send(page)


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


def test_a_browser_of_the_terminal_gets_the_page(hair):
    """The program waits for it, and it waits for the page."""
    get = "import sys, urllib.request as r; sys.excepthook = print; print(r.urlopen('%s', timeout=20).status)"
    with program(hair[2], BROWSER=f'{sys.executable} -c "{get}"') as (process, _):
        assert process.stdout.readline() == "200\n"


def test_too_many_connections_are_one_line(hair):
    with program(hair[2], "--no-browser") as (process, port):
        with contextlib.ExitStack() as stack:
            for _ in range(90):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            time.sleep(2)
        assert get(port, "/")[0] == 200
        process.terminate()
        assert re.fullmatch("Too many connections: .*\n", process.communicate(timeout=60)[1])


def test_problems_of_the_start_are_one_line(tmp_path, monkeypatch):
    small_model("cerebnet")[0].save_pretrained(tmp_path / "slices")
    zoo.SegNet(2, [4], [1], inputs=1, dims=1).save_pretrained(tmp_path / "signals")
    model = small_model("enet")[0]
    model.save_pretrained(tmp_path / "enet")
    for name, value in (("range", [0, 4095]), ("white_level", 4095)):
        model.about.input = {name: value}
        model.save_pretrained(tmp_path / name)

    def check(said: str, *options: object) -> None:
        result = call("app", *options, "--no-browser", status=1)
        assert (len(result.stderr.splitlines()), result.stdout) == (1, "")
        assert re.search(said, result.stderr)

    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        port = used.getsockname()[1]
        check(f"--port {port} cannot be used: Address already in use", tmp_path / "enet", "--port", port)
        monkeypatch.setattr(app, "PORTS", range(port, port + 1))
        check(f"each port from {port} to {port} cannot be used", tmp_path / "enet")
    check("--port must be 1 to 65535, but got 0", tmp_path / "enet", "--port", 0)
    for name in ("range", "white_level"):
        said = f"{name} learned from images of more than 8 bits, of which a browser shows 8: use .* predict "
        check(said, tmp_path / name)
    check("no folder .*none", tmp_path / "none")
    check("slices does not segment pictures .*: ", tmp_path / "slices")
    check("signals does not segment pictures .*: it has 1 dimension", tmp_path / "signals")
    monkeypatch.setenv("MLX_UNPOOL_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("mlx_unpool_zoo.published.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    check("the weights 'hair' are not in .*, and downloads are switched off")
    monkeypatch.setitem(sys.modules, "websockets", None)
    check(r"Not installed: websockets, .* pip install \"mlx-unpool\[app.*\] @ git", tmp_path / "enet")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_program_during_a_prediction(number, hair):
    with program(hair[2], "--no-browser") as (process, port):
        with talk(port) as page:
            page.send('{"width": 1024, "height": 1024}')
            page.send(np.zeros(4 * 1024**2, np.uint8).tobytes())
            page.ping().wait()  # the question has arrived
            process.send_signal(number)
            with pytest.raises(ConnectionClosed):
                page.recv(60)
        assert (process.wait(60), process.stderr.read()) == (-number, "")


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
    """A function that opens a page. No request may leave the computer, and nothing may be in the console."""
    contexts, problems = [], []

    def opened(port: int, **options: Any) -> Any:
        contexts.append(browser.new_context(**{"permissions": ["camera"]} | options))
        page, host = contexts[-1].new_page(), f"127.0.0.1:{port}/"
        page.set_default_timeout(120_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: "ERR_CONNECTION_REFUSED" in said.text or problems.append(said.text))
        own = (f"http://{host}", f"blob:http://{host}", f"ws://{host}", "data:,")
        page.on("request", lambda request: request.url.startswith(own) or problems.append(request.url))
        page.goto(f"http://{host}")
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
    """Wait until a number of pictures has results."""
    until(page, lambda: page.locator("figure:not(.busy)").count() == count)


def style(element: Any, name: str, part: str | None = None) -> str:
    code = "(element, [name, part]) => getComputedStyle(element, part).getPropertyValue(name)"
    return element.evaluate(code, [name, part])


def shown(page: Any, side: str) -> np.ndarray:
    """The pixels of a canvas of the newest picture."""
    address = page.locator(f"figure {side}").first.evaluate("canvas => canvas.toDataURL()")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB"))


@pytest.mark.external
@pytest.mark.parametrize("size", [(512, 512), (1100, 1400), (700, 300), (1280, 720), (600, 1500)])
def test_a_download_is_what_hair_py_writes(size, hair, open_page, tmp_path):
    """Sizes that are sent unchanged or reduced, in one square or several, with and without transparency."""
    picture = Image.open(PORTRAIT).resize(size)
    if max(size) > 4 / 3 * min(size):
        picture.putalpha(Image.linear_gradient("L").resize(size))
    picture.save(tmp_path / "a.b.png")
    options = "--model", hair[2], "--colour", "blue", "--output", tmp_path / "expected.png"
    call("hair", tmp_path / "a.b.png", *options)
    page = open_page(hair[1])
    page.locator("input[title=blue]").check()
    page.set_input_files("#files", tmp_path / "a.b.png")
    finished(page, 2)
    with page.expect_download() as download:
        page.locator("figure").first.get_by_text("Download").click()
    assert download.value.suggested_filename == "a.b-hair.png"
    files = download.value.path(), tmp_path / "expected.png", tmp_path / "a.b.png"
    pictures = [Image.open(path).convert("RGBA") for path in files]
    assert len({each.getchannel("A").tobytes() for each in pictures}) == 1
    for ground in ("black", "white"):  # how they look on both
        behind = Image.new("RGBA", size, ground)
        over = [np.int16(Image.alpha_composite(behind, each).convert("RGB")) for each in pictures]
        found, expected, before = over
        assert (np.abs(found - expected) > 2).mean() < 1e-3  # masks have 8 bits
        changes = [(np.abs(each - before) > 2).any(-1) for each in (found, expected)]
        assert np.logical_and(*changes).sum() / np.logical_or(*changes).sum() > 0.98
        assert changes[1].mean() > 0.05


@pytest.mark.external
def test_photographs_of_every_kind_are_shown_upright(hair, open_page, tmp_path):
    Image.new("RGB", (64, 32), "red").save(tmp_path / "turned.jpg", exif=TURNED)
    Image.new("CMYK", (8, 8)).save(tmp_path / "cmyk.jpg")
    Image.new("I;16", (8, 8)).save(tmp_path / "deep.png")
    Image.new("LA", (1, 1)).save(tmp_path / "one.png")
    Image.new("RGBA", (8, 8)).save(tmp_path / "alpha.webp")
    Image.new("P", (8, 8)).save(tmp_path / "a.gif", save_all=True, append_images=[Image.new("P", (8, 8), 9)])
    page, paths = open_page(hair[1]), sorted(tmp_path.iterdir())
    page.set_input_files("#files", paths)
    finished(page, 1 + len(paths))
    assert page.locator("figure .name").all_inner_texts()[:-1] == [path.name for path in reversed(paths)]
    assert shown(page, ".after").shape == (64, 32, 3)
    for name, content in (("text.png", b"text"), ("a.heic", b"\0\0\0\x18ftypheic"), ("no.jpg", b"")):
        (tmp_path / name).write_bytes(content)
    for name, size in (("a.svg", 9), ("a.pdf", 9), ("film.mov", 3 * 10**8), ("large.png", 200_000_001)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    expected = """text.png: It is damaged, or not a photograph.
a.heic: This browser cannot read HEIC and TIFF. Use python -m mlx_unpool_zoo hair FILE
a.svg: It is a drawing in SVG. Save it as PNG.
a.pdf: It is a PDF document. Save its pages as PNG or JPEG.
no.jpg: The file is empty.
film.mov: It is a film. Use python -m mlx_unpool_zoo hair FILE
large.png: It has more than 200 MB."""
    page.set_input_files("#files", [tmp_path / line.partition(":")[0] for line in expected.splitlines()])
    until(page, lambda: page.inner_text("#message") == expected)
    drop = """([type, name, bytes]) => {
        const all = new DataTransfer(), data = Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0));
        all.items.add(new File([data], name, { type: "image/jpeg" }));
        const options = { bubbles: true, cancelable: true, dataTransfer: all, clipboardData: all };
        const event = new (type === "paste" ? ClipboardEvent : DragEvent)(type, options);
        if (document.body.dispatchEvent(event) && type === "drop") throw Error("the browser would open it");
    }"""
    page.get_by_role("tab", name="Photographs").click()  # which must not stop a paste
    for count, kind in enumerate(("drop", "paste"), 2):
        data = base64.b64encode((tmp_path / "turned.jpg").read_bytes()).decode()
        page.evaluate(drop, [kind, f"{kind}.jpg", data])
        finished(page, len(paths) + count)
        assert page.locator("figure .name").first.inner_text() == f"{kind}.jpg"
    page.locator("figure").first.get_by_text("Remove").click()
    finished(page, len(paths) + 2)


@pytest.mark.external
def test_the_camera_is_shown_live_and_ends_with_its_tab(hair, open_page):
    page = open_page(hair[1])
    page.get_by_role("tab", name="Camera").click()
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
    page.get_by_role("tab", name="Photographs").click()
    assert not page.evaluate("kept.active")
    page.get_by_role("tab", name="Camera").click()
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
    problems = {
        "NotAllowed": "does not allow this page",
        "NotFound": "No camera",
        "NotReadable": "Another program",
    }
    for name, said in problems.items():
        failing = f"() => Promise.reject(new DOMException('', '{name}Error'))"
        page.evaluate(f"() => void (navigator.mediaDevices.getUserMedia = {failing})")
        page.get_by_role("tab", name="Photographs").click()
        page.get_by_role("tab", name="Camera").click()
        page.get_by_text(said).wait_for()


@pytest.mark.external
def test_pages_fit_narrow_windows_and_work_with_the_keyboard(open_page):
    model = randomised(small_model("enet")[0], all_weights=True)
    with served(model) as port:
        page = open_page(port, viewport={"width": 390, "height": 800})
        finished(page, 1)
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


ATTACK = """async (target) => {
    const loaded = (thing) => new Promise((yes, no) =>
        Object.assign(thing, { onload: yes, onopen: yes, onerror: no }));
    const tries = {};
    for (const mode of ["cors", "no-cors"])
        for (const path of ["/", "/page.js", "/portrait.jpg"])
            tries[mode + path] = fetch(target + path, { mode });
    for (const [tag, path] of [["img", "/portrait.jpg"], ["script", "/page.js"]]) {
        const element = document.body.appendChild(document.createElement(tag));
        tries[tag] = loaded(element);
        element.src = target + path;
    }
    for (const host of [target, target.replace("127.0.0.1", "localhost")])
        tries[host] = loaded(new WebSocket(host.replace("http", "ws") + "/talk"));
    const ends = await Promise.allSettled(Object.values(tries));
    return [ends.length, Object.keys(tries).filter((_, n) => ends[n].status === "fulfilled")];
}"""


@pytest.mark.external
def test_a_malicious_page_in_the_same_browser_reaches_nothing(hair, browser, tmp_path):
    (tmp_path / "index.html").write_text("<!doctype html><title>evil</title>")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, browser.new_page() as page:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        reached = page.evaluate(ATTACK, f"http://127.0.0.1:{hair[1]}")
        server.shutdown()
        thread.join()
    assert reached == [10, []]


@pytest.mark.external
def test_the_whole_page_is_used_by_keyboard(hair, open_page):
    page = open_page(hair[1])
    finished(page, 1)
    active = """() => { const { id, name, className, value, title } = document.activeElement;
        return id || [name || className || "picture", title || value].filter(Boolean).join(" "); }"""
    walk = ["photograph-tab", "colour copper", "colour another colour", "strength 100", "view compare"]
    walk += ["files", "picture 50", "remove", "download"]
    for expected in walk:
        page.keyboard.press("Tab")
        assert page.evaluate(active) == expected
    with page.expect_download():
        page.keyboard.press("Enter")
    for expected in walk[-2::-1]:
        page.keyboard.press("Shift+Tab")
        assert page.evaluate(active) == expected
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.get_by_text("Stop the camera").wait_for()
    for expected in walk[1:5]:
        page.keyboard.press("Tab")
        assert page.evaluate(active) == expected
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.get_by_text("Start the camera").wait_for()
    page.get_by_role("tab", name="Camera").focus()
    page.keyboard.press("F5")
    finished(page, 1)


@pytest.mark.external
def test_the_first_look(hair, open_page, monkeypatch):
    """The photograph before its result, one movement, and the last choice in the address."""
    gate, mask = threading.Event(), zoo.HairSegmenter.mask
    monkeypatch.setattr(zoo.HairSegmenter, "mask", lambda *given, **k: gate.wait(60) and mask(*given, **k))
    moves = "() => document.getAnimations().filter((each) => each.animationName === 'sweep').length"
    for motion in ("reduce", "no-preference"):
        page = open_page(hair[1], reduced_motion=motion)
        page.locator("figure.busy .compare").wait_for()
        assert (shown(page, ".before") == np.asarray(Image.open(PORTRAIT))).mean() > 0.9
        gate.set()
        finished(page, 1)
        assert page.evaluate(moves) == (motion != "reduce")
        gate.clear()
    until(page, lambda: not page.evaluate(moves))
    gate.set()
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
def test_four_colours_beside_each_other(hair, open_page, tmp_path):
    model, picture = hair[0], Image.open(PORTRAIT)
    page, half = open_page(hair[1]), np.asarray(picture.resize((256, 256), Image.Resampling.BOX))
    page.get_by_label("Four colours").check()
    label = "After: copper, blond, pink, purple"
    page.get_by_label(label).wait_for()
    assert style(page.locator(".compare"), "display", "::before") == "none"  # no grip
    mask = model.mask(picture)
    brightness, small = brightness_of(np.asarray(picture), mask), np.asarray(Image.fromarray(mask).reduce(2))
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    found = np.asarray(Image.open(download.value.path()).convert("RGB")).astype(int)
    assert np.abs(found - shown(page, ".after")).mean() < 12  # JPEG
    for number, name in enumerate(label[7:].split(", ")):
        part = shown(page, ".after")[256 * (number // 2) :, 256 * (number % 2) :][:230, :256]
        expected = recoloured(half, small, table_of(colour_of(name), brightness))[:230].astype(int)
        assert np.abs(part - expected).mean() < 4


@pytest.mark.external
def test_what_goes_wrong_is_said(hair, open_page, monkeypatch):
    page = open_page(hair[1])
    finished(page, 1)
    gate, none = threading.Event(), lambda *_, **__: gate.wait(60) and np.zeros((512, 512), np.float32)
    late = lambda text: page.clock.fast_forward(121_000) or page.get_by_text(text).count()
    with monkeypatch.context() as patched:
        patched.setattr(zoo.HairSegmenter, "mask", none)
        page.clock.install()
        page.set_input_files("#files", PORTRAIT)
        page.locator("figure.busy .compare").wait_for()
        until(page, lambda: late("The program has not answered for 120 seconds."))
        gate.set()
        page.set_input_files("#files", PORTRAIT)
        page.get_by_text(
            "the network expects a face that fills much of the picture: crop it"
        ).first.wait_for()
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
def test_another_model_on_the_port_is_noticed(hair, open_page):
    (port,) = free_ports()
    with served(hair[0], port):
        page = open_page(port)
        finished(page, 1)
    for model in (randomised(small_model("enet")[0], all_weights=True), randomised(zoo.HairSegmenter())):
        with served(model, port):
            page.set_input_files("#files", PORTRAIT)
            page.get_by_text("Another model runs here now: reload this page.").wait_for()
    with served(hair[0], port):  # the same one again
        page.set_input_files("#files", PORTRAIT)
        finished(page, 2)


@pytest.mark.external
@pytest.mark.parametrize("look", ["color_scheme: light", "color_scheme: dark", "forced_colors: active"])
def test_the_page_follows_wcag(look, hair, open_page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page(hair[1], bypass_csp=True, **dict([look.split(": ")]))
    finished(page, 1)
    assert page.locator("#progress[role=status]").inner_text().startswith("Example: Eileen Collins, NASA: ")
    page.set_input_files("#files", Path(__file__))
    page.get_by_text("It is damaged, or not a photograph.").wait_for()
    for tab in ("Photographs", "Camera"):
        page.get_by_role("tab", name=tab).click()
        tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
        found = axe.run(page, options={"runOnly": tags})
        assert not found.violations_count, found.generate_report()
    luminance = {}
    for selector in ("body", "[title=black]", "[title=blond]", ".drop", "[role=tablist]", "#start"):
        name = "background-color" if selector == "body" else "border-top-color"
        colour = np.float64(re.findall(r"\d+", style(page.locator(selector), name))[:3]) / 255
        linear = np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
        luminance[selector] = linear @ [0.2126, 0.7152, 0.0722] + 0.05
    ground = luminance.pop("body")
    assert min(max(each, ground) / min(each, ground) for each in luminance.values()) >= 3, luminance
    for one, other in (("[title=black]", "[title=blue]"), ("[aria-selected=true]", "[aria-selected=false]")):
        assert style(page.locator(one), "background") != style(page.locator(other), "background")
