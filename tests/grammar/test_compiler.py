from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar import GrammarCompiler, GrammarMatcher, compiler
from sglang_lite.grammar.errors import GrammarError, GrammarTooLargeError, InvalidGrammarError
from sglang_lite.grammar.structural_tags import StructuralTag
from sglang_lite.grammar.syntax import Bytes, Node
from tests.grammar.toy import EOS, regex, toy_compiler, toy_vocab

SPECIAL_CHOICES = ["Dr. Smith", "a+b", "C:\\dir", "(x|y)", "[1]", 'say "hi"']


def test_choices_are_texts_not_patterns() -> None:
    """dottxt-ai/outlines#1275: unescaped, the dot would match any character."""
    grammar = toy_compiler().compile_choices(SPECIAL_CHOICES)
    assert all(map(grammar.accepts, SPECIAL_CHOICES))
    assert not any(map(grammar.accepts, ["Drx Smith", "x", "aab", "ab", "1", "C:dir", "", "Dr. Smith "]))


def test_an_empty_choice_is_a_choice() -> None:
    """guidance-ai/guidance#826."""
    grammar = toy_compiler().compile_choices(["PER", "ORG", ""])
    assert grammar.accepts("")
    matcher = GrammarMatcher(grammar)
    assert matcher.is_accepting
    assert EOS in matcher.allowed_ids()
    assert not matcher.has_only_end
    assert matcher.accept_token(EOS)


def test_only_the_empty_choice_leaves_only_the_end() -> None:
    matcher = GrammarMatcher(toy_compiler().compile_choices([""]))
    assert matcher.has_only_end
    assert matcher.allowed_ids() == list(toy_vocab().eos_ids)


@pytest.mark.parametrize("choices", [[], (), iter([])])
def test_no_choices_are_a_value_error(choices: object) -> None:
    with pytest.raises(ValueError, match="the list is empty"):
        toy_compiler().compile_choices(choices)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("choices", "match"), [("abc", "got one str"), (["a", 3], "int"), (["a", "b\ud800"], "lone surrogate")]
)
def test_choices_that_are_no_texts_are_refused(choices: list[str], match: str) -> None:
    with pytest.raises(InvalidGrammarError, match=match):
        toy_compiler().compile_choices(choices)


@given(st.lists(st.text(alphabet="ab猫", max_size=4), min_size=1, max_size=6), st.text(alphabet="ab猫", max_size=5))
def test_exactly_the_choices_are_accepted(choices: list[str], probe: str) -> None:
    """Whatever prefixes of one another they are."""
    grammar = toy_compiler().compile_choices(choices)
    assert all(map(grammar.accepts, choices))
    assert grammar.accepts(probe) == (probe in choices)


def test_choices_may_be_bytes_that_are_no_text() -> None:
    grammar = toy_compiler().compile_choices([b"\xff\x00", "é"])
    assert grammar.accepts(b"\xff\x00")
    assert grammar.accepts(b"\xc3\xa9")
    assert not grammar.accepts(b"\xff")


def test_a_thousand_choices_compile_and_stay_exact() -> None:
    choices = [f"item {number}" for number in range(1000)]
    grammar = toy_compiler().compile_choices(choices)
    assert grammar.accepts("item 999")
    assert not grammar.accepts("item 1000")
    assert GrammarMatcher(grammar).forced_bytes() == b"item "


def test_one_text_is_compiled_once() -> None:
    own = GrammarCompiler(toy_vocab())
    assert own.compile_regex("a|b") is own.compile_regex("a|b")
    assert own.compile_choices(["a", "b"]) is own.compile_choices(["b", "a", "b"])
    assert own.compile_regex("a") is not own.compile_choices(["a"])


def test_the_least_recently_used_grammar_goes_first() -> None:
    own = GrammarCompiler(toy_vocab(), max_grammars=2)
    first, second = own.compile_regex("a"), own.compile_regex("b")
    own.compile_regex("a")
    own.compile_regex("c")
    assert own.compile_regex("a") is first
    assert own.compile_regex("b") is not second


def test_threads_share_one_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    gate = threading.Event()
    original = compiler.parse_regex

    def slow_parse(pattern: str) -> Node:
        calls.append(pattern)
        gate.wait(10)
        return original(pattern)

    monkeypatch.setattr(compiler, "parse_regex", slow_parse)
    own = GrammarCompiler(toy_vocab())
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(own.compile_regex("abc"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join()
    assert calls == ["abc"]
    assert len(found) == 4
    assert len(set(map(id, found))) == 1


def test_a_bad_pattern_harms_no_other_and_is_not_kept() -> None:
    own = GrammarCompiler(toy_vocab())
    good = GrammarMatcher(own.compile_regex("ab+"))
    expected = good.allowed_ids()
    for pattern in ("(", "[z-a]", "(?=a)b", "a{99999999}"):
        with pytest.raises(GrammarError) as first:
            own.compile_regex(pattern)
        with pytest.raises(GrammarError) as second:
            own.compile_regex(pattern)
        assert first.value is not second.value
    assert good.allowed_ids() == expected
    assert own.compile_regex("ab+") is good.compiled


def test_the_state_limit_is_the_compilers() -> None:
    with pytest.raises(GrammarTooLargeError, match="more than 100 states"):
        GrammarCompiler(toy_vocab(), max_states=100).compile_regex("a{200}")
    assert regex("a{200}").accepts("a" * 200)


def test_the_table_limit_is_the_compilers() -> None:
    grammar = GrammarCompiler(toy_vocab(), max_table_bytes=80_000).compile_regex("(a|b)*a(a|b){16}")
    with pytest.raises(GrammarTooLargeError, match="max_table_bytes"):
        grammar.compressed(max_states=10**6)


def test_rules_and_tags_are_compiled_once_and_an_empty_language_is_a_fault() -> None:
    compiler = toy_compiler()
    assert compiler.compile_ebnf('root ::= "a"') is compiler.compile_ebnf('root ::= "a"')
    assert compiler.compile_lark('start: "a"') is compiler.compile_lark('start: "a"')
    with pytest.raises(InvalidGrammarError, match="no text matches"):
        compiler.compile_lark('start: "a" start')
    tag = StructuralTag("<a>", Bytes(b"x"), "</a>")
    assert compiler.compile_structural_tags([tag]) is compiler.compile_structural_tags([tag])
    assert compiler.compile_structural_tags([tag]) is not compiler.compile_structural_tags([tag], at_least_one=True)


def test_structural_tags_with_a_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"x": {"type": "integer"}},
        "required": ["x"],
        "additionalProperties": False,
    }
    spec = {
        "type": "structural_tag",
        "structures": [{"begin": "<f>", "schema": schema, "end": "</f>"}],
        "triggers": ["<f"],
    }
    compiled = toy_compiler().compile_structural_tag(spec)
    assert compiled.accepts('so <f>{"x":1}</f>!')
    assert not compiled.accepts('so <f>{"x":"1"}</f>!')
    assert compiled is toy_compiler().compile_structural_tag(spec)
    assert toy_compiler().compile_structural_tag(spec, whitespace="spaced").accepts('<f>{"x": 1}</f>')
