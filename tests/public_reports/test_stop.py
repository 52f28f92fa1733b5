"""Public reports about stop strings and stop tokens, as tests of their whole kind."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.engine.engine import Engine
from tests.support.scripted_core import stream_script
from tests.support.toy_text import END

PROMPT = "Say it:"


def check_stream(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """Text only grows; returns the last reply."""
    for earlier, later in pairwise(pieces):
        assert later["text"].startswith(earlier["text"])
    return pieces[-1]


def both(engine: Engine, text: str, **params: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The script `text` on the real model, streamed and whole."""
    sampling = {"temperature": 0.0, "regex": re.escape(text)} | params
    pieces = list(engine.generate(PROMPT, sampling, stream=True))
    return pieces, engine.generate(PROMPT, sampling)


@pytest.mark.model
@pytest.mark.parametrize("stop", [["beta gamma"], "beta gamma", ["nothing like it", "beta gamma", "gamma"]])
def test_no_part_of_a_stop_string_is_streamed(engine: Engine, stop: Any) -> None:
    """C23: pieces of a stop string were streamed before the match was complete."""
    pieces, whole = both(engine, "alpha beta gamma delta", stop=stop)
    assert check_stream(pieces)["text"] == whole["text"] == "alpha "
    assert whole["meta_info"]["finish_reason"] == {"type": "stop", "matched": "beta gamma"}
    kept, _ = both(engine, "alpha beta gamma delta", stop=stop, no_stop_trim=True)
    assert check_stream(kept)["text"] == "alpha beta gamma"


@pytest.mark.model
def test_no_part_of_a_stop_string_is_streamed_by_a_program(engine: Engine) -> None:
    """C23, in the language: the iterator, the variable and the state's text agree; the next text follows the cut."""

    @sgl.function
    def talk(s: Any) -> None:
        s += PROMPT
        s += sgl.gen("x", regex=re.escape("alpha beta gamma delta"), stop="beta gamma", temperature=0.0)
        s += "!"

    state = talk.run(backend=engine, stream=True)
    pieces = list(state.text_iter("x"))
    assert "".join(pieces) == state["x"] == "alpha "
    assert state.text() == PROMPT + "alpha !"
    assert state.get_meta_info("x")["finish_reason"] == {"type": "stop", "matched": "beta gamma"}


@pytest.mark.parametrize("cut", range(1, 12))
def test_no_part_of_a_stop_string_is_streamed_without_a_grammar(cut: int) -> None:
    """C23, with fixed tokens: byte for byte, and with a stop string that begins over and over."""
    text = b"aab" * 3 + b"aabc tail"
    stop = "aab" * min(cut, 3) + "c" if cut < 9 else "aabc"
    replies = stream_script(text, SamplingParams(stop=(stop,), max_new_tokens=40))
    at = text.find(stop.encode())
    assert check_stream(replies)["text"] == text[:at].decode()
    assert bytes(replies[-1]["output_ids"]) == text[:at]
    assert replies[-1]["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}


@pytest.mark.model
@pytest.mark.parametrize(
    ("text", "stop"), [("What now?\nUse", "\nUser:"), ("pleas", "she asks"), ("pleas", "ease"), ("so ...", "....")]
)
def test_text_held_back_is_given_at_the_natural_end(engine: Engine, text: str, stop: str) -> None:
    """C25: text held back as a possible beginning of a stop string was dropped when the generation then ended."""
    pieces, whole = both(engine, text, stop=[stop])
    assert check_stream(pieces)["text"] == whole["text"] == text
    assert whole["meta_info"]["finish_reason"]["type"] == "stop"


@pytest.mark.model
def test_text_held_back_is_given_where_the_length_cuts(engine: Engine) -> None:
    """C25: at every length the stream, the whole reply and the tokens' own text are one."""
    text, tokens = "What now?\nUser", engine.tokenizer.visible_bytes
    ids = both(engine, text)[1]["output_ids"]
    for length in range(1, len(ids)):
        expected = b"".join(tokens[i] for i in ids[:length]).decode()
        pieces, whole = both(engine, text, stop=["\nUser:"], max_new_tokens=length)
        assert check_stream(pieces)["text"] == whole["text"] == expected
        assert whole["meta_info"]["finish_reason"] == {"type": "length"}
        assert whole["output_ids"] == ids[:length]


@pytest.mark.parametrize("ending", [0, 1, 3, 5])
def test_text_held_back_is_given_without_a_grammar(ending: int) -> None:
    """C25, with fixed tokens: ended by the end token, and by the length."""
    text = b"What now?" + b"\nUser:"[:ending]
    params = SamplingParams(stop=("\nUser:",), max_new_tokens=40)
    ended = check_stream(stream_script([*text, END], params))
    assert ended["text"] == text.decode()
    assert ended["meta_info"]["finish_reason"] == {"type": "stop", "matched": END}
    cut = check_stream(stream_script(b"What now?\nUser:", params.with_(max_new_tokens=len(text))))
    assert cut["text"] == text.decode()
    assert cut["meta_info"]["finish_reason"] == {"type": "length"}


X = ord("!")
"""A second end token of the model, which has a text of its own."""


@pytest.mark.parametrize(
    ("ignore_eos", "stop_token_ids", "runs_on"), [(True, (), True), (False, (), False), (True, (X,), False)]
)
def test_ignore_eos_ignores_every_end_token_but_explicit_ones(
    ignore_eos: bool, stop_token_ids: tuple[int, ...], runs_on: bool
) -> None:
    """C27: extra end tokens of the model were treated as stop tokens of the caller, which `ignore_eos` does not touch."""
    params = SamplingParams(max_new_tokens=12, ignore_eos=ignore_eos, stop_token_ids=stop_token_ids)
    last = check_stream(stream_script([X, *b"and more text"], params, eos_ids=(END, X)))
    if runs_on:
        assert last["text"] == "!and more te"
        assert (len(last["output_ids"]), last["meta_info"]["finish_reason"]) == (12, {"type": "length"})
    else:
        assert (last["text"], last["output_ids"]) == ("", [])
        assert last["meta_info"]["finish_reason"] == {"type": "stop", "matched": X}


@pytest.mark.model
def test_ignore_eos_on_the_model(engine: Engine) -> None:
    """C27, with a bias that makes the model say its end token for ever."""
    (end,) = engine.tokenizer.eos_ids
    params = {"temperature": 0.0, "max_new_tokens": 6, "logit_bias": {end: 100.0}}
    ignored, ended, explicit = engine.generate(
        [PROMPT] * 3,
        [params | {"ignore_eos": True}, params, params | {"ignore_eos": True, "stop_token_ids": [end]}],
    )
    assert (ignored["output_ids"], ignored["text"]) == ([end] * 6, "")
    assert ignored["meta_info"]["finish_reason"] == {"type": "length"}
    for reply in (ended, explicit):
        assert (reply["output_ids"], reply["text"]) == ([], "")
        assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": end}
