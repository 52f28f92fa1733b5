"""A record as one HTML page without anything from elsewhere, and as a frame for notebooks; it reads the JSON form.

The page is the component `view/tree.js` with the record beside it as data: no text of a model is ever markup.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, cast

_FRAME_HEIGHT = 520
_LARGEST_IN_JAVASCRIPT = 2**53 - 1

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{css}</style>
</head>
<body class="sgl-page">
<main id="record"></main>
<script type="application/json" id="data">{data}</script>
<script>{js}</script>
<script>SglTree.mountRecord(document.getElementById("record"), JSON.parse(document.getElementById("data").textContent));</script>
</body>
</html>
"""


def record_page(run: Mapping[str, Any]) -> str:
    """The page of a record in its JSON form."""
    # Inside a script element only "<" could end it; U+2028 and U+2029 are legal in JSON and in today's JavaScript.
    data = json.dumps(for_browser(run), ensure_ascii=False).replace("<", "\\u003c")
    return _PAGE.format(
        title=html.escape(f"{run['program']}: record of a run"),
        css=view_file("tree.css"),
        data=data,
        js=view_file("tree.js"),
    )


def record_frame(run: Mapping[str, Any]) -> str:
    """The page inside a frame, so that its styles and the notebook's do not meet."""
    page = html.escape(record_page(run), quote=True)
    return (
        f'<iframe sandbox="allow-scripts" title="Record of a run" srcdoc="{page}" '
        f'style="width: 100%; height: {_FRAME_HEIGHT}px; border: 1px solid #8884; border-radius: 6px"></iframe>'
    )


def for_browser(value: Any) -> Any:
    """A copy in which whole numbers that JavaScript cannot hold, such as seeds, are strings."""
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST_IN_JAVASCRIPT else str(value)
    if isinstance(value, Mapping):
        return {name: for_browser(item) for name, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [for_browser(item) for item in cast("list[Any]", value)]
    return value


def view_file(name: str) -> str:
    """A file of the views that ship with the package."""
    return (files("sglang_lite") / "view" / name).read_text(encoding="utf-8")
