"""The commands and the example of docs/own_images.md, in their order, as a new user runs them."""

import re
import shlex
from pathlib import Path

import numpy as np
from helpers.masks import BLOCKS, pairs, put
from helpers.programs import ROOT, call
from mlx_unpool_zoo.data.class_file import read_class_file

PAGE = (ROOT / "docs/own_images.md").read_text()
BLOCK = re.compile(r"((?:^    .*\n)+)", re.MULTILINE)  # of lines that are indented


def test_the_commands_of_the_page_train_and_label_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    masks = [np.uint8(255) * (BLOCKS > 0)] * 5
    put(tmp_path, pairs(masks, "photos/images photos/masks"))
    Path("classes.txt").unlink()
    images = sorted(Path("photos/images").iterdir())
    put(tmp_path, {"new.jpg": np.zeros((24, 32, 3), np.uint8)})
    put(tmp_path, {"more_images/b.png": np.zeros((20, 30, 3), np.uint8)})
    commands = re.findall(r"^    python -m mlx_unpool_zoo (.*)", PAGE, re.MULTILINE)
    train, predict = [shlex.split(command) for command in commands]
    short = "--model", "enet", "--steps", "1"
    assert "photos/classes.txt" in call(*train, *short, status=1).stderr
    call(*train, *short, "--write-classes")
    path = Path("photos/classes.txt")
    assert "write a name for 0 in place of ?" in call(*train, *short, status=1).stderr
    path.write_text(path.read_text().replace("0 ?", "0 background").replace("255 ?", "255 road"))
    said = call(*train, *short[2:]).stdout
    line = "images for train: photos/images/{} has the mask photos/masks/{}, and so on."
    assert line.format("a.jpg", "a.png") in PAGE
    assert line.format(images[0].name, images[0].name) in said
    files = re.findall(r"^\| `(\w+\.?\w*)/?`", PAGE, re.MULTILINE)[:3]
    assert [name for name in files if not Path("runs/train", name).exists()] == []
    call(*predict)
    assert Path("runs/classes-new.png").exists()
    assert Path("runs/classes-b.png").exists()
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    found: dict = {}
    exec(compile(example, "own_images.md", "exec"), found)
    assert (found["classes"].shape, found["names"]) == ((24, 32), ["background", "road"])


def test_the_class_file_of_the_page_is_read(tmp_path):
    (lines,) = [block for block in BLOCK.findall(PAGE) if "0 background" in block]
    rows = [re.split(r"  +", line.strip()) for line in lines.splitlines()]
    numbers, colours = tmp_path / "numbers.txt", tmp_path / "colours.txt"
    numbers.write_text("\n".join(row[0] for row in rows) + "\n2 road")
    colours.write_text("\n".join(row[1] for row in rows) + "\n#000001 background")
    assert [entry.get("label") for entry in read_class_file(numbers).entries()] == [0, 1]
    assert [entry["name"] for entry in read_class_file(colours).entries()] == ["road", "background"]
