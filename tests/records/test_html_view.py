"""The page of a record: whole in one file, and nothing of a run is markup."""

from __future__ import annotations

import html
import json
import re

from sglang_lite.records.html_view import for_browser, view_file
from tests.records.support import REPLIES, recorded


def test_the_page_holds_the_record_and_everything_that_shows_it() -> None:
    record = recorded()
    page = record.to_html()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    assert json.loads(found.group(1)) == for_browser(record.to_json())
    assert view_file("tree.js") in page
    assert view_file("tree.css") in page


def test_the_page_asks_nobody_for_anything() -> None:
    page = recorded().to_html()
    assert "default-src 'none'" in page
    for pattern in (r"https?://", r"\bsrc=", r"\bhref=", r"@import", r"url\("):
        assert not re.search(pattern, page), pattern


def test_a_text_cannot_leave_its_place() -> None:
    page = recorded("</script><script>alert(1)</script>").to_html()
    assert "<script>alert" not in page
    assert REPLIES["topic"] not in page


def test_the_component_builds_no_markup_from_text() -> None:
    for name in ("tree.js",):
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in view_file(name), f"{name} uses {word}"


def test_numbers_too_large_for_a_browser_are_strings() -> None:
    """A seed has 63 bits, a number of JavaScript 53."""
    assert for_browser({"seed": 2**62 + 1, "rest": [2**53 - 1, (True, None, 0.5, "a")]}) == {
        "seed": str(2**62 + 1),
        "rest": [2**53 - 1, [True, None, 0.5, "a"]],
    }


def test_a_notebook_shows_the_page_in_a_frame_of_its_own() -> None:
    record = recorded()
    frame = record._repr_html_()
    assert frame.startswith('<iframe sandbox="allow-scripts"')
    found = re.search(r'srcdoc="([^"]*)"', frame)
    assert found is not None
    assert html.unescape(found.group(1)) == record.to_html()
