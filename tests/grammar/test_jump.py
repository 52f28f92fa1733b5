from __future__ import annotations

import json
import random
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite.grammar.compiled import CompiledGrammar, GrammarSource
from sglang_lite.grammar.compiler import GrammarCompiler
from sglang_lite.grammar.matcher import GrammarMatcher
from sglang_lite.grammar.regex import parse_regex
from sglang_lite.grammar.syntax import Bytes, Grammar, Node, choices, concat
from sglang_lite.grammar.vocab import TokenVocab
from tests.grammar.recursive import NUMBER, STRING, json_grammar
from tests.grammar.toy import CONTROL, toy_vocab

if TYPE_CHECKING:
    from sglang_lite.runtime.text.tokenizer import Tokenizer

PIECES = [
    b"",
    b"",
    b"a",
    b"b",
    b"c",
    b"ab",
    b"abc",
    b"bc",
    b"cd",
    b"d",
    b" ",
    b"  ",
    b" a",
    b"\xc3",
    b"\xa9",
    "é".encode(),
    b"x",
    b"xx",
]
MARK = 1  # a special token


def longest_first(text: str) -> list[int]:
    """A tokenizer whose tokens depend on what follows: always the longest that fits."""
    data, ids = text.encode(), []
    while data:
        best = max((i for i in range(2, len(PIECES)) if data.startswith(PIECES[i])), key=lambda i: len(PIECES[i]))
        ids.append(best)
        data = data[len(PIECES[best]) :]
    return ids


@cache
def compiler() -> GrammarCompiler:
    return GrammarCompiler(TokenVocab(PIECES, eos_ids=[0], special_ids=[MARK], encode=longest_first))


def jump(pattern: str, before: str = "", context: list[int] | None = None) -> list[bytes]:
    matcher = GrammarMatcher(compiler().compile_regex(pattern))
    ids = longest_first(before)
    assert matcher.accept_tokens(ids) == len(ids)
    return [PIECES[i] for i in matcher.jump_forward(context or [])]


@pytest.mark.parametrize(
    ("pattern", "before", "tokens"),
    [
        ("abcd", "", [b"abc", b"d"]),  # the end is known: nothing can follow
        ("abc(d|x)", "", []),  # `cd` may come, behind `ab`
        ("abx(d|x)", "", [b"ab"]),  # no token begins in `ab` and goes on
        ("abc?", "", []),  # `abc` may still come
        ("abcx(x|a)", "", [b"abc"]),  # `xx` may still come
        ("abcxa?", "", [b"abc", b"x"]),  # `xx` cannot come, so `x` stands
        ("abc (a|b)", "", [b"abc"]),  # white space is cut by what follows
        ("a|b", "", []),
        ("xabcd", "x", [b"abc", b"d"]),
        ("(a|x)bcd", "a", []),  # the tokenizer would have written `abc`, and what stands is not rewritten
    ],
)
def test_what_is_certain(pattern: str, before: str, tokens: list[bytes]) -> None:
    assert jump(pattern, before) == tokens


def test_half_characters_are_never_forced() -> None:
    assert jump("é", "") == ["é".encode()]
    assert jump("aé|aè"[:2], "") == [b"a", "é".encode()]
    matcher = GrammarMatcher(compiler().compile_regex("xé"))
    assert matcher.accept_tokens([16, 13]) == 2
    assert matcher.forced_bytes() == b"\xa9"
    assert matcher.jump_forward() == []


def test_what_stands_before_the_first_token_counts() -> None:
    """Behind `a` the tokenizer writes no `bc`; behind a special token the text begins anew."""
    a = PIECES.index(b"a")
    assert jump("bcd", context=[]) == [b"bc", b"d"]
    assert jump("bcd", context=[a]) == []
    assert jump("bcd", context=[a, MARK]) == [b"bc", b"d"]


def test_nothing_is_forced_without_a_tokenizer_or_behind_the_end() -> None:
    assert GrammarMatcher(GrammarCompiler(toy_vocab()).compile_regex("abcd")).jump_forward() == []
    matcher = GrammarMatcher(compiler().compile_regex("x"))
    matcher.accept_tokens([PIECES.index(b"x"), 0])
    assert matcher.is_terminated
    assert matcher.jump_forward() == []
    assert CONTROL not in matcher.jump_forward()


def test_a_tokenizer_that_changes_the_text_forces_nothing() -> None:
    for encode in (lambda text: [MARK], lambda text: [999], lambda text: longest_first(text.upper().lower() + "x")):
        vocab = TokenVocab(PIECES, eos_ids=[0], special_ids=[MARK], encode=encode)
        assert GrammarMatcher(GrammarCompiler(vocab).compile_regex("abcd")).jump_forward() == []


def test_forced_tokens_are_not_accepted_yet_and_each_call_gives_a_new_list() -> None:
    matcher = GrammarMatcher(compiler().compile_regex("abcd"))
    first = matcher.jump_forward()
    first.append(0)
    assert matcher.num_accepted == 0
    assert matcher.accept_tokens(matcher.jump_forward()) == 2
    matcher.rollback(1)
    assert matcher.fork().jump_forward() == [PIECES.index(b"d")]


def template(value: object, colon: str, comma: str) -> Node:
    """The shape of `value`: names are fixed, scalars free."""
    if isinstance(value, dict):
        parts: list[Node] = [Bytes(b"{")]
        for index, (name, inner) in enumerate(value.items()):
            label = json.dumps(name, ensure_ascii=False)
            parts += [Bytes(f"{comma if index else ''}{label}{colon}".encode()), template(inner, colon, comma)]
        return concat([*parts, Bytes(b"}")])
    if isinstance(value, list):
        inner = [template(item, colon, comma) for item in value]
        more = (part for item in inner[1:] for part in (Bytes(comma.encode()), item))
        return concat([Bytes(b"["), *inner[:1], *more, Bytes(b"]")])
    if isinstance(value, bool):
        return choices([b"true", b"false"])
    return parse_regex(STRING if isinstance(value, str) else NUMBER)


DOCUMENTS = [
    {"name": "Ada Lovelace", "born": 1815, "fields": ["mathematics", "computing"], "alive": False},
    {"order id": "x-1", "items": [{"sku": "A1", "count": 2}, {"sku": "B  2", "count": 10}], "totalPrice": 12.5},
    {"città": "Città di Castello", "名前": "東京", "emoji😀": "😀 ok", "tab\tin name": "\n\n x"},
    {"a": "", "b": {"c": {"d": {"e": "it's", "don't": 1}}}, "function_name": "get_current_weather"},
]


def real_compiler(tokenizer: Tokenizer) -> GrammarCompiler:
    return GrammarCompiler(
        TokenVocab.from_tokenizer(tokenizer, encode=lambda text: tokenizer.encode(text, parse_special=False))
    )


@pytest.mark.model
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")], ids=["compact", "spaced"])
def test_on_a_canonical_text_every_run_is_what_the_tokenizer_writes(
    tokenizer: Tokenizer, separators: tuple[str, str]
) -> None:
    made = real_compiler(tokenizer)
    forced = total = 0
    for index, document in enumerate(DOCUMENTS):
        text = json.dumps(document, separators=separators, ensure_ascii=False)
        grammar = Grammar(template(document, separators[1], separators[0]))
        matcher = GrammarMatcher(made.compile_grammar(grammar, GrammarSource("test", str(index))))
        ids = tokenizer.encode(text, parse_special=False)
        while matcher.num_accepted < len(ids):
            at = matcher.num_accepted
            run = matcher.jump_forward()
            assert run == ids[at : at + len(run)]
            forced += len(run)
            assert matcher.accept_tokens(run or ids[at : at + 1]) == max(len(run), 1)
        total += len(ids)
    assert forced > 0.25 * total


@pytest.mark.model
def test_whatever_follows_the_tokenizer_writes_the_run(tokenizer: Tokenizer) -> None:
    """Random legal continuations, token by token, of random legal texts: wherever the last four tokens are canonical, so is the run."""
    made = real_compiler(tokenizer)
    vocab = made.vocab
    grammars = [
        *(Grammar(template(document, ": ", ", ")) for document in DOCUMENTS),
        json_grammar(),
        Grammar(parse_regex(r"(Thought|Answer): \w+( \w+)*\n(Action: (get|set|get_all)\(\d+\)\n)*Done\.?")),
        Grammar(parse_regex(r"1234567(89)?|12345 {1,3}6|new\n{1,3}line|it's|it'll do")),
    ]
    checked = 0
    for index, grammar in enumerate(grammars):
        compiled = made.compile_grammar(grammar, GrammarSource("test", f"random {index}"))
        for seed in range(6):
            checked += check_random_text(compiled, random.Random(seed), tokenizer, vocab)
    assert checked > 50


def check_random_text(compiled: CompiledGrammar, rng: random.Random, tokenizer: Tokenizer, vocab: TokenVocab) -> int:
    matcher = GrammarMatcher(compiled)
    checked = 0
    for _ in range(60):
        run = matcher.jump_forward()
        if run:
            context = matcher._tokens[-4:]
            ahead = matcher.fork()
            assert ahead.accept_tokens(run) == len(run)
            for _ in range(3):
                tail = ahead.fork()
                extend(tail, rng, 4)
                text = b"".join(map(vocab.token_text, [*context, *tail._tokens[matcher.num_accepted :]]))
                ids = tokenizer.encode(text.decode("utf-8", "ignore"), parse_special=False)
                if ids[: len(context)] == context:
                    assert ids[len(context) : len(context) + len(run)] == run
                    checked += 1
            matcher.accept_tokens(run)
        elif not extend(matcher, rng, 1):
            break
    return checked


def extend(matcher: GrammarMatcher, rng: random.Random, steps: int) -> bool:
    """Up to `steps` random legal tokens, never an end token; says whether there was one."""
    ends = matcher.compiled.vocab.eos_ids
    for step in range(steps):
        legal = [token_id for token_id in matcher.allowed_ids() if token_id not in ends]
        if not legal:
            return step > 0
        assert matcher.accept_token(rng.choice(legal))
    return True


@given(
    st.text(alphabet="abcdx é", max_size=8),
    st.text(alphabet="abcdx é", max_size=4),
    st.text(alphabet="abcdx é", max_size=4),
)
def test_runs_of_the_longest_first_tokenizer_are_certain(common: str, left: str, right: str) -> None:
    compiled = compiler().compile_choices([common + left, common + right])
    run = GrammarMatcher(compiled).jump_forward()
    for text in (common + left, common + right):
        assert longest_first(text)[: len(run)] == run
