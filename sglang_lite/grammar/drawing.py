"""Pictures of a compressed automaton: text, Graphviz and SVG; knows no grammar."""

from __future__ import annotations

from html import escape

from sglang_lite.grammar.charset import Range
from sglang_lite.grammar.compressed import CompressedEdge, CompressedFsm

_COLUMN, _ROW, _RADIUS, _MARGIN = 190, 70, 14, 40
_LONGEST = 28  # characters of an edge's text


def edge_text(edge: CompressedEdge) -> str:
    """What an edge reads: a class of bytes, then the run behind it."""
    ranges = edge.first
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _shown(bytes([ranges[0][0]]) + edge.run)
    return ranges_text(ranges) + (_shown(edge.run) if edge.run else "")


def ranges_text(ranges: tuple[Range, ...]) -> str:
    """A class of bytes."""
    return "[" + "".join(map(_range_text, ranges)) + "]"


def as_text(fsm: CompressedFsm) -> str:
    """One line for each state, its edges below it; `>` is the start, `*` an end."""
    by_source = _by_source(fsm)
    lines = [f"{fsm.num_states} states, {len(fsm.states)} after runs are merged"]
    for state in fsm.states:
        marks = (">" if state == fsm.start else " ") + ("*" if state in fsm.accepting else " ")
        lines.append(f"{marks} {state}")
        lines += [f"     {edge_text(edge)} -> {edge.target}" for edge in by_source.get(state, [])]
    return "\n".join(lines) + "\n"


def as_dot(fsm: CompressedFsm) -> str:
    """A Graphviz graph."""
    lines = ["digraph grammar {", "  rankdir=LR;", '  node [shape=circle, label=""];']
    lines += [f"  s{state} [shape=doublecircle];" for state in fsm.states if state in fsm.accepting]
    if fsm.states:
        lines += ["  begin [shape=none];", f"  begin -> s{fsm.start};"]
    for edge in fsm.edges:
        label = edge_text(edge).replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'  s{edge.source} -> s{edge.target} [label="{label}"];')
    return "\n".join([*lines, "}"]) + "\n"


def as_svg(fsm: CompressedFsm) -> str:
    """An SVG picture: states in columns by their distance from the start, ends with a second ring."""
    places = _places(fsm)
    width = max((x for x, _ in places.values()), default=0) + _COLUMN
    height = max((y for _, y in places.values()), default=0) + _ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="monospace" font-size="11">',
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z"/></marker></defs>',
    ]
    parts += [_edge_svg(edge, places) for edge in fsm.edges]
    for state, (x, y) in places.items():
        fill = "#dff0d8" if state in fsm.accepting else "#ffffff"
        parts.append(f'<circle cx="{x}" cy="{y}" r="{_RADIUS}" fill="{fill}" stroke="black"/>')
        if state in fsm.accepting:
            parts.append(f'<circle cx="{x}" cy="{y}" r="{_RADIUS - 4}" fill="none" stroke="black"/>')
        if state == fsm.start:
            parts.append(f'<path d="M{x - 34},{y} L{x - _RADIUS},{y}" stroke="black" marker-end="url(#tip)"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _by_source(fsm: CompressedFsm) -> dict[int, list[CompressedEdge]]:
    found: dict[int, list[CompressedEdge]] = {}
    for edge in fsm.edges:
        found.setdefault(edge.source, []).append(edge)
    return found


def _places(fsm: CompressedFsm) -> dict[int, tuple[int, int]]:
    """Centre of each state."""
    by_source = _by_source(fsm)
    column = {fsm.start: 0} if fsm.states else {}
    waiting = list(column)
    for state in waiting:
        for edge in by_source.get(state, []):
            if edge.target not in column:
                column[edge.target] = column[state] + 1
                waiting.append(edge.target)
    filled: dict[int, int] = {}
    places: dict[int, tuple[int, int]] = {}
    for state in waiting:
        row = filled.get(column[state], 0)
        filled[column[state]] = row + 1
        places[state] = (_MARGIN + column[state] * _COLUMN, _MARGIN + row * _ROW)
    return places


def _edge_svg(edge: CompressedEdge, places: dict[int, tuple[int, int]]) -> str:
    (x, y), (to_x, to_y) = places[edge.source], places[edge.target]
    text = edge_text(edge)
    shown = escape(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")
    if edge.source == edge.target:
        path = f"M{x - 6},{y - _RADIUS} C{x - 24},{y - 44} {x + 24},{y - 44} {x + 6},{y - _RADIUS}"
        middle_x, middle_y = x, y - 38
    elif to_x > x:
        path = f"M{x + _RADIUS},{y} C{x + _COLUMN // 2},{y} {to_x - _COLUMN // 2},{to_y} {to_x - _RADIUS},{to_y}"
        middle_x, middle_y = (x + to_x) // 2, (y + to_y) // 2 - 4
    else:  # back, below the row
        low = max(y, to_y) + _ROW // 2
        path = f"M{x},{y + _RADIUS} C{x},{low} {to_x},{low} {to_x},{to_y + _RADIUS}"
        middle_x, middle_y = (x + to_x) // 2, low - 8
    return (
        f'<path d="{path}" fill="none" stroke="#666" marker-end="url(#tip)"/>'
        f'<text x="{middle_x}" y="{middle_y}" text-anchor="middle">{shown}</text>'
    )


def _range_text(span: Range) -> str:
    low, high = span
    return _shown(bytes([low])) if low == high else f"{_shown(bytes([low]))}-{_shown(bytes([high]))}"


def _shown(data: bytes) -> str:
    """`data` readable: characters as they are, what has no picture as escapes."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "".join(chr(byte) if 0x21 <= byte < 0x7F else f"\\x{byte:02x}" for byte in data)
    return "".join(char if char == " " or char.isprintable() else repr(char)[1:-1] for char in text)
