"""Markdown of a report, and its place in a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.tables import BEGIN, END, insert, markdown, number

REPORT = {
    "environment": {"processor": "P", "python": "3", "versions": {"torch": "2", "numba": None}, "commit": "c" * 40},
    "settings": {"threads": 2, "rounds": 3},
    "workloads": {
        "W1": {
            "code": "W1", "title": "decode", "unit": "tok/s",
            "contestants": {
                "sglang_lite": {"notes": [], "rounds": [{"details": {"tokens": 1056}}]},
                "llama.cpp Q4_1 np=1": {"notes": [], "rounds": []},
                "transformers fp32": {"notes": ["failed: not installed"], "rounds": []},
            },
            "groups": {
                "sglang_lite": {"best": "sglang_lite", "rate": {"median": 250.4, "min": 240.0, "max": 260.0}},
                "llama.cpp Q4_1": {
                    "best": "llama.cpp Q4_1 np=1", "rate": {"median": 100.0, "min": 90.0, "max": 110.0},
                    "ratio": 2.504, "ratio_min": 2.4, "ratio_max": 2.7, "goals": (1.0, 2.0), "verdict": "goal",
                },
                "transformers fp32": None,
            },
        },
    },
    "tables": {"bounds": {"markdown": "| bound |\n|---|"}},
}  # fmt: skip


def test_tables_name_medians_spread_ratios_goals_and_failures() -> None:
    text = markdown(REPORT)
    assert "| W1 decode | sglang_lite | 250 (240 to 260) tok/s |  |  |  |" in text
    assert "| llama.cpp Q4_1 np=1 | 100 (90 to 110) tok/s | 2.50 (2.40 to 2.70) | 1 / 2 | goal |" in text
    assert "W1, transformers fp32: failed: not installed" in text
    assert "tokens 1,056" in text
    assert "P, 2 threads, 3 rounds, commit cccccccccccc" in text
    assert text.endswith("| bound |\n|---|\n")


def test_figures_take_the_place_of_older_ones_in_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    insert(page, "new")
    insert(page, "newer\n")
    assert page.read_text() == f"before\n{BEGIN}\n\nnewer\n\n{END}\nafter\n"


def test_a_page_without_a_marked_place_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here")
    with pytest.raises(ValueError, match="expected the marks"):
        insert(page, "new")
    assert page.read_text() == "nothing here"


@pytest.mark.parametrize(("value", "text"), [(1234.5, "1,234"), (0.51234, "0.512"), (7, "7"), (12.0, "12"), ("a", "a")])
def test_numbers_are_short(value: object, text: str) -> None:
    assert number(value) == text
