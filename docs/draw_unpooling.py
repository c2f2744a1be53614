"""Draws docs/unpooling.svg, with numbers that the library computes: python docs/draw_unpooling.py

Each window has a colour. All colours are readable on a light page and on a dark one.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import mlx.core as mx

import mlx_unpool

SIDE, FONT = 40, 20  # the labels are still readable on a telephone, at 60 % of this size
LIGHT = ("#fdba74", "#93c5fd", "#86efac", "#f9a8d4")
STRONG = ("#ea7a12", "#3b82f6", "#16a34a", "#db2777")
EMPTY, TEXT, CAPTION = "#f3f4f6", "#111827", "#7a7a7a"
INPUT = [[3, 5, 0, 2], [0, 1, 1, 7], [4, 2, 8, 0], [1, 6, 3, 1]]


def grid(left: float, top: float, numbers: list[list[int]], fills: dict[int, str]) -> str:
    """A grid of numbers on coloured squares; positions are counted row by row."""
    columns = len(numbers[0])
    parts = []
    for position, value in enumerate(chain(*numbers)):
        x, y = left + position % columns * SIDE, top + position // columns * SIDE
        parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{SIDE}" height="{SIDE}" '
            f'fill="{fills.get(position, EMPTY)}" stroke="#9ca3af"/>'
        )
        parts.append(text(x + SIDE / 2, y + SIDE / 2 + 7, str(value), TEXT))
    if columns == 4:
        x, y = left + 2 * SIDE, top + 2 * SIDE
        lines = f"M{x:g} {top:g}v{4 * SIDE}M{left:g} {y:g}h{4 * SIDE}"
        parts.append(f'<path d="{lines}" stroke="#4b5563" stroke-width="2.5"/>')
    return "\n".join(parts)


def text(x: float, y: float, words: str, colour: str) -> str:
    """Words around a point."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="{colour}">{words}</text>'


def arrow(x: float, y: float, to_x: float, to_y: float, number: int) -> str:
    """A curved arrow in the colour of a window."""
    middle = (x + to_x) / 2
    return (
        f'<path d="M{x:g} {y:g}C{middle:g} {y:g} {middle:g} {to_y:g} {to_x:g} {to_y:g}" fill="none" '
        f'stroke="{STRONG[number]}" stroke-width="2" marker-end="url(#head{number})"/>'
    )


def svg() -> str:
    """The picture: input, pooled values with their indices, and what unpooling makes of them."""
    x = mx.array(INPUT, dtype=mx.float32)[None, ..., None]
    pool = mlx_unpool.MaxPool2d(2, return_indices=True)
    values, indices = pool(x)
    full = mlx_unpool.MaxUnpool2d.from_pool(pool)(values, indices, output_size=x.shape)
    values, indices, full = (a.squeeze().astype(mx.int32).tolist() for a in (values, indices, full))
    positions = list(chain(*indices))

    first, pooled, last, top = 10, 255, 420, 36
    maxima = {position: LIGHT[n] for n, position in enumerate(positions)}
    windows = dict(enumerate(LIGHT))
    parts = [
        grid(first, top, INPUT, maxima),
        grid(pooled, top, values, windows),
        grid(pooled, top + 3 * SIDE, indices, windows),
        grid(last, top, full, maxima),
        text(first + 2 * SIDE, top - 14, "input", CAPTION),
        text(pooled + SIDE, top - 14, "values", CAPTION),
        text(pooled + SIDE, top + 3 * SIDE - 10, "indices", CAPTION),
        text(last + 2 * SIDE, top - 14, "unpooled", CAPTION),
    ]
    for n, position in enumerate(positions):
        # From border to border: above the middle for a value in the left column, below it in the right one.
        y = top + (position // 4 + 0.5) * SIDE
        pooled_y = top + (n // 2 + (0.3, 0.7)[n % 2]) * SIDE
        parts.append(arrow(first + 4 * SIDE + 3, y, pooled - 2, pooled_y, n))
        parts.append(arrow(pooled + 2 * SIDE + 3, pooled_y, last - 2, y, n))
    width, height = last + 4 * SIDE + 10, top + 5 * SIDE + 64
    parts.append(
        text(
            width / 2,
            height - 34,
            "An index is a position in the input, counted row by row:",
            CAPTION,
        )
    )
    parts.append(text(width / 2, height - 8, "0 to 3, 4 to 7, 8 to 11, 12 to 15.", CAPTION))
    heads = "".join(
        f'<marker id="head{n}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
        for n, colour in enumerate(STRONG)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="{FONT}">\n'
        "<title>Max pooling and unpooling of a 4 x 4 array</title>\n"
        f"<defs>{heads}</defs>\n" + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    Path(__file__).with_name("unpooling.svg").write_text(svg())
