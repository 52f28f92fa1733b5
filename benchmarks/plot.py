"""Ratios of a report as a picture, where matplotlib is installed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def draw(report: Mapping[str, Any], path: Path) -> bool:
    """Bars of how many times each peer's rate is reached, on a logarithmic axis. False without matplotlib or ratios."""
    try:
        import matplotlib  # pyright: ignore[reportMissingImports] - optional: the extra `bench`
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    bars = [
        (f"{one['code']} {one['title']} | {group}", figures)
        for one in report.get("workloads", {}).values()
        for group, figures in one["groups"].items()
        if figures is not None and "ratio" in figures
    ]
    if not bars:
        return False
    bars.reverse()
    figure, axes = pyplot.subplots(figsize=(9, 0.9 + 0.32 * len(bars)))
    ratios = [figures["ratio"] for _, figures in bars]
    low = [max(figures["ratio"] - figures["ratio_min"], 0.0) for _, figures in bars]
    high = [max(figures["ratio_max"] - figures["ratio"], 0.0) for _, figures in bars]
    axes.barh([name for name, _ in bars], ratios, xerr=[low, high], color="#4477aa", ecolor="#888888")
    for place, (_, figures) in enumerate(bars):
        for goal, style in zip(figures.get("goals") or (), (":", "-"), strict=False):
            axes.plot([goal, goal], [place - 0.4, place + 0.4], style, color="#cc3311")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("ours / theirs (red: dotted the least, solid the goal)")
    where, what = report.get("environment", {}), report.get("settings", {})
    told = [where.get("processor"), f"{what.get('threads')} threads, {what.get('rounds')} rounds", where.get("date")]
    told.append(f"commit {str(where.get('commit'))[:12]}")
    axes.set_title(", ".join(str(one) for one in told if one), fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return True
