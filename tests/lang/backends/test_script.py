"""Where replies come from, and how a reply is cut and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_lite.errors import RequestError
from sglang_lite.lang.backends.script import Script, ScriptedCall, ScriptError, fit, placeholder, read_script, words
from sglang_lite.lang.ir import REGEX_BOOL, REGEX_FLOAT, REGEX_INT, REGEX_STR
from sglang_lite.request_tree import SamplingParams


def call(name: str | None = "x", choices: tuple[str, ...] | None = None, **params: Any) -> ScriptedCall:
    return ScriptedCall(3, "gen", name, "prompt", SamplingParams(**params), choices)


def test_a_list_is_read_in_order_whatever_the_names() -> None:
    script = Script(["1", "2"])
    assert [script.next(call("a")), script.next(call(None))] == ["1", "2"]
    with pytest.raises(
        ScriptError, match=r"gen 'a' \(call 3\) from the script: the script has no reply left, it had 2"
    ):
        script.next(call("a"))


def test_a_dict_has_one_reply_or_a_list_for_each_name() -> None:
    script = Script({"a": "always", "b": ["1", "2"], "*": "other"})
    assert [script.next(call(name)) for name in ("a", "b", "a", "b", "c", None)] == [
        "always",
        "1",
        "always",
        "2",
        "other",
        "other",
    ]
    with pytest.raises(ScriptError, match="no reply left"):
        script.next(call("b"))
    with pytest.raises(ScriptError, match=r"no reply for this name, only for \['a'\]"):
        Script({"a": "x"}).next(call(None))


def test_a_function_computes_replies() -> None:
    assert Script(lambda one: f"{one.name}{one.index}").next(call()) == "x3"


def test_the_given_replies_are_not_changed_and_not_watched() -> None:
    given, by_name = ["1"], {"x": ["1"]}
    first, second = Script(given), Script(by_name)
    given.append("2")
    by_name["x"].append("2")
    assert (first.next(call()), second.next(call())) == ("1", "1")
    for script in (first, second):
        with pytest.raises(ScriptError):
            script.next(call())
    assert (given, by_name) == (["1", "2"], {"x": ["1", "2"]})


def test_one_text_is_no_script() -> None:
    with pytest.raises(RequestError, match="got the text 'abc'"):
        Script("abc")


def test_a_file_holds_a_list_or_an_object(tmp_path: Path) -> None:
    path = tmp_path / "replies.json"
    for replies in (["a", ["b", "c"]], {"x": "a"}):
        path.write_text(json.dumps(replies))
        assert read_script(path) == replies
    for text in ("3", "{"):
        path.write_text(text)
        with pytest.raises(RequestError, match=r"reading the script .*replies\.json"):
            read_script(path)
    with pytest.raises(RequestError, match="No such file"):
        read_script(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("regex", "text"), [(REGEX_INT, "0"), (REGEX_FLOAT, "0"), (REGEX_STR, '"text"'), (REGEX_BOOL, "True")]
)
def test_placeholders_fit_a_dtype(regex: str, text: str) -> None:
    assert placeholder(call(regex=regex)) == text


def test_placeholders_are_a_choice_or_the_name() -> None:
    assert placeholder(call(choices=("b", "a"))) == "b"
    assert placeholder(call("name")) == "<name>"
    assert placeholder(call(None)) == "<text>"
    with pytest.raises(ScriptError, match="nothing is scripted that matches regex='z'"):
        placeholder(call(regex="z"))


@pytest.mark.parametrize(
    ("text", "params", "visible", "reason"),
    [
        ("one two", {}, "one two", {"type": "stop", "matched": None}),
        ("one two three", {"stop": ("three", "two")}, "one ", {"type": "stop", "matched": "two"}),
        ("one two", {"stop": ("two",), "no_stop_trim": True}, "one two", {"type": "stop", "matched": "two"}),
        ("one 22 three", {"stop_regex": (r"\d+",)}, "one ", {"type": "stop", "matched": "22"}),
        ("one two three", {"max_new_tokens": 2}, "one two", {"type": "length", "length": 2}),
        ("one two", {"max_new_tokens": 2}, "one two", {"type": "stop", "matched": None}),
        ("one two", {"max_new_tokens": 0}, "", {"type": "length", "length": 0}),
        ("one two", {"max_new_tokens": None}, "one two", {"type": "stop", "matched": None}),
        ("one two END", {"max_new_tokens": 1, "stop": ("END",)}, "one", {"type": "length", "length": 1}),
        ("", {"max_new_tokens": 0}, "", {"type": "stop", "matched": None}),
        ("STOP now", {"stop": ("STOP",)}, "", {"type": "stop", "matched": "STOP"}),
        ("42 apples", {"regex": REGEX_INT, "stop": (" ",)}, "42", {"type": "stop", "matched": " "}),
        ("abc def", {"regex": "abc def ghi", "max_new_tokens": 1}, "abc", {"type": "length", "length": 1}),
        ('{"a": 1}', {"json_schema": "{}"}, '{"a": 1}', {"type": "stop", "matched": None}),
    ],
)
def test_a_reply_is_cut_where_a_generation_would_end(
    text: str, params: dict[str, Any], visible: str, reason: dict[str, Any]
) -> None:
    fitted = fit(text, SamplingParams(**params), call())
    assert (fitted.text, fitted.finish_reason) == (visible, reason)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"regex": "[0-9]+"}, r"does not match regex='\[0-9\]\+'"),
        ({"choices": ("a", "b")}, r"is none of the choices \['a', 'b'\]"),
        ({"json_schema": "{}"}, "is no JSON"),
    ],
)
def test_a_reply_that_a_constraint_does_not_allow_is_an_error(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ScriptError, match=f"the reply 'text' {message}"):
        fit("text", SamplingParams(**params), call())


@pytest.mark.parametrize("text", ["", " ", "a", "a b", " a  b ", "a\n\nb\n", "  \n"])
def test_words_join_to_the_text(text: str) -> None:
    assert "".join(words(text)) == text
