"""A chart of two libraries' times as SVG. Its colours are readable on a light page and on a dark one."""

from __future__ import annotations

import math
from html import escape

OURS, THEIRS, TEXT, LINE = "#3b82f6", "#ea7a12", "#7a7a7a", "#9ca3af"
# On a screen 390 pixels wide the chart is 342 pixels wide, and letters of 17 units are 12 pixels high.
WIDTH, FONT, ROW = 480, 17, 24
LEFT, RIGHT = 192, 404  # of the axis
Times = tuple[
    str, float, float
]  # label of a row, seconds of this library, seconds of the other one


def comparison(title: str, ours: str, theirs: str, groups: dict[str, list[Times]]) -> str:
    """Two points per row on a logarithmic axis in milliseconds, and how many times faster ours is."""
    times = [time for rows in groups.values() for _, *both in rows for time in both]
    low, high = math.log10(min(times)) - 0.15, math.log10(max(times)) + 0.15

    def place(seconds: float) -> float:
        return LEFT + (math.log10(seconds) - low) / (high - low) * (RIGHT - LEFT)

    top = 2 * ROW + 12
    bottom = top + sum((len(rows) + 1.25) * ROW for rows in groups.values())
    parts = [
        _point(14, 18, THEIRS, filled=False),
        _text(28, 24, theirs),
        _point(114, 18, OURS, filled=True),
        _text(128, 24, ours),
        _text(WIDTH - 6, 24, "speed-up", anchor="end"),
    ]
    for power in range(math.ceil(low), math.floor(high) + 1):
        x, label = place(10.0**power), f"{10.0 ** (power + 3):g}"
        parts.append(f'<path d="M{x:g} {top - 8:g}V{bottom:g}" stroke="{LINE}" opacity="0.4"/>')
        parts.append(_text(x, bottom + 20, label, anchor="middle"))
    parts.append(_text((LEFT + RIGHT) / 2, bottom + 42, "milliseconds", anchor="middle"))
    y = top + 0.5 * ROW
    for name, rows in groups.items():
        parts.append(_text(6, y, name, weight="bold"))
        for label, our_time, their_time in rows:
            y += ROW
            ratio = their_time / our_time
            digits = 2 if ratio < 1 else 1 if ratio < 10 else 0
            a, b = sorted((place(our_time), place(their_time)))
            parts += [
                _text(LEFT - 10, y, label, anchor="end"),
                f'<path d="M{a:g} {y - 6:g}H{b:g}" stroke="{LINE}" stroke-width="2"/>',
                _point(place(their_time), y - 6, THEIRS, filled=False),
                _point(place(our_time), y - 6, OURS, filled=True),
                _text(WIDTH - 6, y, f"{ratio:.{digits}f}x", anchor="end"),
            ]
        y += 1.25 * ROW
    height = round(bottom + 52)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" font-family="Helvetica, Arial, sans-serif" font-size="{FONT}">\n'
        f"<title>{escape(title)}</title>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _text(x: float, y: float, words: str, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{TEXT}">{escape(words)}</text>'
    )


def _point(x: float, y: float, colour: str, filled: bool) -> str:
    fill = colour if filled else "none"
    return f'<circle cx="{x:g}" cy="{y:g}" r="5.5" fill="{fill}" stroke="{colour}" stroke-width="2.5"/>'
