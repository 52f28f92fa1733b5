"""Results as Markdown, and where they stand in a page of the documentation; knows no measuring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def markdown(report: Mapping[str, Any]) -> str:
    """All tables of a report, with the machine it was made on."""
    parts = [_heading(report["environment"], report["settings"])]
    if workloads := report.get("workloads"):
        parts.append(workload_table(workloads.values()))
        parts.append(notes(workloads.values()))
    parts += [table["markdown"] for table in report.get("tables", {}).values()]
    return "\n\n".join(part for part in parts if part) + "\n"


def workload_table(workloads: Iterable[Mapping[str, Any]]) -> str:
    """Rates of each group, least and greatest in brackets; ratios of medians with those of single rounds."""
    rows: list[Sequence[str]] = []
    for one in workloads:
        name = f"{one['code']} {one['title']}"
        for group, figures in one["groups"].items():
            if figures is None:
                rows.append((name, group, "-", "", "", ""))
            else:
                rate, goals = figures["rate"], figures.get("goals")
                rows.append(
                    (
                        name,
                        figures["best"],
                        f"{number(rate['median'])} ({number(rate['min'])} to {number(rate['max'])}) {one['unit']}",
                        _ratio(figures),
                        f"{goals[0]:g} / {goals[1]:g}" if goals else "",
                        figures.get("verdict") or "",
                    )
                )
            name = ""
    return table(("workload", "who", "median (spread)", "ours / theirs", "safe / goal", "reached"), rows)


def notes(workloads: Iterable[Mapping[str, Any]]) -> str:
    """What did not run, and why; details of the workloads."""
    lines: list[str] = []
    for one in workloads:
        for name, figures in one["contestants"].items():
            lines += [f"- {one['code']}, {name}: {note}" for note in figures["notes"]]
            if figures["rounds"] and (details := figures["rounds"][-1]["details"]):
                told = ", ".join(f"{key} {number(value)}" for key, value in details.items())
                lines.append(f"- {one['code']}, {name}: {told}")
    return "\n".join(lines)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def number(value: Any) -> str:
    """Three or four digits."""
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def insert(page: Path, figures: str) -> None:
    """Put figures between the two marks of a page, in the place of what stands there.

    Raises:
        ValueError: the page has no such marks.
    """
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"putting figures into {page}: expected the marks {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{figures.strip()}\n\n{END}{after}", encoding="utf-8")


def _ratio(figures: Mapping[str, Any]) -> str:
    if "ratio" not in figures:
        return ""
    return f"{figures['ratio']:.2f} ({figures['ratio_min']:.2f} to {figures['ratio_max']:.2f})"


def _heading(environment: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items() if version)
    commit = (environment.get("commit") or "unknown")[:12]
    server = f"; llama-server {told}" if (told := environment.get("llama_server")) else ""
    return (
        f"{environment['processor']}, {settings['threads']} threads, {settings['rounds']} rounds, commit {commit}, "
        f"{environment.get('date', '')}. Python {environment['python']}, {versions}{server}."
    )
