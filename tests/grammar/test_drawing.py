from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from sglang_lite.grammar.drawing import as_dot, as_svg, as_text
from tests.grammar.toy import regex


def test_pictures_hold_every_edge() -> None:
    fsm = regex('(cat|category|dog)s?"').compressed()
    assert as_dot(fsm).count("->") == len(fsm.edges) + 1
    assert as_text(fsm).count("->") == len(fsm.edges)
    tree = ElementTree.fromstring(as_svg(fsm))
    texts = [node.text for node in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert len(texts) == len(fsm.edges)
    assert any("og" in (text or "") for text in texts)


def test_an_empty_grammar_has_an_empty_picture() -> None:
    fsm = regex("a^").compressed()
    assert "0 states" in as_text(fsm)
    ElementTree.fromstring(as_svg(fsm))
