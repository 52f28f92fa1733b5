"""Values as expressions that wait for nothing: of joins, too."""

from __future__ import annotations

from typing import Any

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.lang.api import function, gen
from sglang_lite.lang.backends.scripted import ScriptedBackend


def test_the_value_of_a_vote_and_the_text_of_a_join_can_be_referred_to() -> None:
    def body(s: Any) -> None:
        forks = s.fork(3)
        forks += gen("x")
        forks.join(vote="x")
        with s.var_scope("all"):
            more = s.fork(2)
            more += "/" + gen("y")
            more.join("concate_and_append")
        s += " won: " + s.ref("x") + " of" + s.ref("all")

    state = function(body).run(backend=ScriptedBackend({"x": ["a", "b", "b"], "y": ["1", "2"]}))
    assert state.text() == "/1/2 won: b of/1/2"


def test_a_list_of_winners_is_no_text() -> None:
    def body(s: Any) -> None:
        forks = s.fork(2)
        forks += gen("x")
        forks.join(first=1)
        with pytest.raises(RequestError, match="read it"):
            s.ref("x")

    function(body).run(backend=ScriptedBackend({"x": "a"}))
