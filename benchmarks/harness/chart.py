"""A chart of two libraries' times as SVG. Its colours are readable on a light page and on a dark one."""

from __future__ import annotations

from pathlib import Path

OURS, THEIRS, TEXT, LINE = "#3b82f6", "#ea7a12", "#7a7a7a", "#9ca3af"
# In points. On a screen 390 pixels wide the chart is 342 pixels wide and its letters 12 high.
WIDTH, FONT, ROW = 480, 17, 24
Times = tuple[
    str, float, float
]  # label of a row, seconds of this library, seconds of the other one


def comparison(path: Path, ours: str, theirs: str, groups: dict[str, list[Times]]) -> None:
    """Save a chart: two points per row on a logarithmic axis, and how many times faster ours is."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style = {"font.size": FONT, "text.color": TEXT, "axes.labelcolor": TEXT, "xtick.color": TEXT}
    # Letters stay text, and the same times give the same file.
    style |= {"svg.fonttype": "none", "svg.hashsalt": "chart"}
    rows = sum(len(rows) + 1.25 for rows in groups.values())
    with plt.rc_context(style):
        figure = plt.figure(figsize=(WIDTH / 72, (rows + 4) * ROW / 72))
        axes = figure.add_axes((0.4, 2.5 / (rows + 4), 0.44, rows / (rows + 4)))
        beside = {"va": "center", "clip_on": False, "transform": axes.get_yaxis_transform()}
        axes.text(1.36, -0.9, "speed-up", ha="right", **beside)
        y = 0.0
        for name, times in groups.items():
            axes.text(-0.89, y, name, weight="bold", **beside)
            for label, our_time, their_time in times:
                y += 1
                both, ratio = [1e3 * their_time, 1e3 * our_time], their_time / our_time
                axes.plot(both, [y, y], color=LINE, linewidth=2, zorder=1)
                axes.scatter(
                    both, [y, y], 110, ["none", OURS], edgecolors=[THEIRS, OURS], linewidths=2.5
                )
                axes.text(-0.05, y, label, ha="right", **beside)
                digits = 2 if ratio < 1 else 1 if ratio < 10 else 0
                axes.text(1.36, y, f"{ratio:.{digits}f}x", ha="right", **beside)
            y += 1.25
        points = [
            axes.scatter([], [], 110, fill, edgecolors=edge, linewidths=2.5, label=library)
            for library, fill, edge in ((theirs, "none", THEIRS), (ours, OURS, OURS))
        ]
        figure.legend(
            handles=points,
            loc="upper left",
            ncols=2,
            frameon=False,
            handletextpad=0,
            columnspacing=1,
        )
        axes.set(xscale="log", xlabel="milliseconds", ylim=(y - 0.5, -0.5), yticks=[])
        axes.xaxis.set_major_formatter("{x:g}")
        axes.tick_params(length=0, which="both")
        axes.grid(axis="x", color=LINE, alpha=0.4)
        axes.spines[:].set_visible(False)
        figure.savefig(path, transparent=True, metadata={"Date": None})
        plt.close(figure)
