from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sglang_lite.errors import ExecutionError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.scheduler.finish import Accepted, FinishRules, OutputText, StopMatcher
from sglang_lite.runtime.scheduler.messages import FinishReason
from tests.support.fake_grammar import FakeGrammar

BYTES = [bytes([i]) for i in range(256)]
END = 256
VISIBLE = [*BYTES, b"", b"word", b"xSTOPy"]


def output(
    params: SamplingParams, *, prompt_len: int = 1, context: int = 100, eos: tuple[int, ...] = (END,)
) -> OutputText:
    rules = FinishRules.of(
        params, prompt_len=prompt_len, context_length=context, eos_ids=frozenset(eos), vocab_size=len(VISIBLE)
    )
    return OutputText(params, rules, VISIBLE)


def feed(
    text: OutputText, ids: list[int], grammar: FakeGrammar | None = None
) -> tuple[bytes, list[int], FinishReason | None]:
    """Tokens one at a time: (shown text, text_end after each token, reason)."""
    data, ends = b"", []
    for token in ids:
        accepted = text.accept([token], grammar)
        data += accepted.new_bytes
        ends.append(text.text_end)
        if accepted.reason is not None:
            return data[: text.text_end], ends, accepted.reason
    return data[: text.text_end], ends, None


def test_a_stop_string_over_several_tokens_is_never_shown_in_part() -> None:
    text = output(SamplingParams(stop=("beta gamma",)))
    shown, ends, reason = feed(text, list(b"alpha beta gamma delta"))
    assert shown == b"alpha "
    assert reason == FinishReason("stop", "beta gamma")
    assert max(ends) == len(b"alpha ")
    assert text.kept_len == len(b"alpha ")


def test_a_stop_string_is_kept_on_request() -> None:
    shown, _, _ = feed(output(SamplingParams(stop=("beta gamma",), no_stop_trim=True)), list(b"alpha beta gamma delta"))
    assert shown == b"alpha beta gamma"


@pytest.mark.parametrize(
    ("tail", "stops", "max_new", "reason"),
    [
        (list(b"What now?\n"), ("\nUser:",), 10, FinishReason("length")),
        ([*b"What now?\nUse", END], ("\nUser:",), 50, FinishReason("stop", END)),
        ([*b"pleas", END], ("xasy", "as if"), 50, FinishReason("stop", END)),
    ],
)
def test_text_held_back_for_a_stop_string_is_shown_at_the_end(
    tail: list[int], stops: tuple[str, ...], max_new: int, reason: FinishReason
) -> None:
    shown, _, got = feed(output(SamplingParams(stop=stops, max_new_tokens=max_new)), tail)
    assert got == reason
    assert shown == bytes(t for t in tail if t != END)


def test_the_stop_string_that_is_complete_first_wins_and_of_two_the_longer() -> None:
    for ids in (list(b"a STOP b"), [*b"a ", 258]):
        shown, _, reason = feed(output(SamplingParams(stop=("STOPy", "TOP", "STOP"))), ids)
        assert reason == FinishReason("stop", "STOP")
        assert shown in (b"a ", b"a x")


def test_a_token_cut_by_a_stop_string_is_shown_up_to_it_and_not_kept() -> None:
    text = output(SamplingParams(stop=("STOP",)))
    shown, _, _ = feed(text, [257, 258])
    assert shown == b"wordx"
    assert text.kept_len == 1


@pytest.mark.parametrize("stop", ["é", "né", "ée!"])
def test_a_stop_string_of_several_bytes_holds_back_whole_characters(stop: str) -> None:
    data = "une née!".encode()
    shown, ends, reason = feed(output(SamplingParams(stop=(stop,))), list(data))
    assert reason == FinishReason("stop", stop)
    assert shown == data[: data.index(stop.encode())]
    for end in ends:
        data[:end].decode()


def test_a_stop_pattern_ends_at_its_earliest_match_and_shows_nothing_before() -> None:
    text = output(SamplingParams(stop_regex=(r"\d+;", r"[xyz]")))
    shown, ends, reason = feed(text, list("né 42; x".encode()))
    assert reason == FinishReason("stop", r"\d+;")
    assert shown == "né ".encode()
    assert set(ends[:-1]) == {0}


def test_a_stop_string_goes_before_a_pattern_and_both_before_an_end_token() -> None:
    params = SamplingParams(stop=("d",), stop_regex=("w",), stop_token_ids=(257,))
    assert output(params).accept([257]).reason == FinishReason("stop", "d")
    assert output(params.with_(stop=())).accept([257]).reason == FinishReason("stop", "w")
    assert output(params.with_(stop=(), stop_regex=())).accept([257]).reason == FinishReason("stop", 257)


def test_an_end_token_goes_before_the_length_and_the_length_before_the_grammar() -> None:
    params = SamplingParams(max_new_tokens=1)
    assert output(params).accept([END]).reason == FinishReason("stop", END)
    assert output(params).accept([5], FakeGrammar([frozenset({5})], END)).reason == FinishReason("length")


def test_a_stop_token_is_neither_text_nor_kept_unless_asked() -> None:
    text = output(SamplingParams(stop_token_ids=(257,)))
    shown, _, reason = feed(text, [*b"ab", 257])
    assert (shown, reason, text.kept_len, text.num_tokens) == (b"ab", FinishReason("stop", 257), 2, 3)
    text = output(SamplingParams(stop_token_ids=(257,), no_stop_trim=True))
    shown, _, _ = feed(text, [*b"ab", 257])
    assert (shown, text.kept_len) == (b"abword", 3)


def test_ignore_eos_ignores_every_end_token_of_the_model_and_no_explicit_one() -> None:
    eos = (END, 88)
    script = [*b"ab", 88, END, *b"cdefghij"]
    params = SamplingParams(max_new_tokens=12, ignore_eos=True)
    assert feed(output(params, eos=eos), script)[2] == FinishReason("length")
    shown, _, reason = feed(output(params.with_(ignore_eos=False), eos=eos), script)
    assert (shown, reason) == (b"ab", FinishReason("stop", 88))
    assert feed(output(params.with_(stop_token_ids=(88,)), eos=eos), script)[2] == FinishReason("stop", 88)


def test_nothing_stops_within_the_first_min_new_tokens() -> None:
    params = SamplingParams(min_new_tokens=4, stop=("ab",), stop_token_ids=(120,))
    shown, ends, reason = feed(output(params), list(b"abxbabz"))
    assert (shown, reason) == (b"abxb", FinishReason("stop", "ab"))
    assert ends[:4] == [1, 2, 3, 4]
    assert feed(output(params), list(b"xxxxx"))[2] == FinishReason("stop", 120)


def test_the_context_caps_the_length() -> None:
    assert feed(output(SamplingParams(max_new_tokens=50), prompt_len=97), list(b"abcdef"))[0] == b"abc"
    assert feed(output(SamplingParams(max_new_tokens=None), prompt_len=97), list(b"abcdef"))[0] == b"abc"


@pytest.mark.parametrize("params", [SamplingParams(ignore_eos=True, min_new_tokens=9), SamplingParams()])
def test_a_grammar_with_only_the_end_left_ends_the_request_whatever_the_parameters(params: SamplingParams) -> None:
    grammar = FakeGrammar([frozenset({97}), frozenset({98})], END)
    text = output(params)
    shown, _, reason = feed(text, list(b"abc"), grammar)
    assert (shown, reason, text.kept_len) == (b"ab", FinishReason("stop"), 2)


def test_a_grammar_that_took_its_end_token_keeps_it_out() -> None:
    text = output(SamplingParams(ignore_eos=True))
    shown, _, reason = feed(text, [97, END], FakeGrammar([frozenset({97}), frozenset({98, END})], END))
    assert (shown, reason, text.kept_len) == (b"a", FinishReason("stop"), 1)


def test_a_token_outside_vocabulary_or_grammar_ends_the_request_with_an_error() -> None:
    for text, grammar, token in (
        (output(SamplingParams(stop=("abc",))), None, len(VISIBLE)),
        (output(SamplingParams(stop=("abc",))), None, -1),
        (output(SamplingParams(stop=("abc",))), FakeGrammar([frozenset({97}), frozenset({98})], END), 120),
    ):
        text.accept([97], grammar)
        reason = text.accept([token], grammar).reason
        assert reason is not None
        assert isinstance(reason.error, ExecutionError)
        assert str(token) in str(reason.error)
        assert text.text_end >= 1


tokens = st.lists(st.sampled_from([*b"abcd", 0xC3, 0xA9, END, 257]), max_size=12)
parameters = st.builds(
    SamplingParams,
    max_new_tokens=st.integers(1, 10),
    min_new_tokens=st.integers(0, 3),
    stop=st.lists(st.sampled_from(["ab", "abc", "b", "é", "cé", "dab", "wor"]), max_size=3).map(tuple),
    stop_regex=st.lists(st.sampled_from(["a+b", "é|d", "c.*d"]), max_size=1).map(tuple),
    stop_token_ids=st.lists(st.sampled_from([100, 257]), max_size=1).map(tuple),
    ignore_eos=st.booleans(),
    no_stop_trim=st.booleans(),
)


@given(tokens, parameters, st.data())
def test_many_tokens_at_once_end_where_they_would_one_by_one(
    ids: list[int], params: SamplingParams, data: st.DataObject
) -> None:
    one, many = output(params), output(params)
    shown, ends, reason = feed(one, ids)
    got, last, at = b"", Accepted(0, b"", None), 0
    while at < len(ids) and last.reason is None:
        size = data.draw(st.integers(1, 5))
        last = many.accept(ids[at : at + size])
        got += last.new_bytes
        at += size
    assert (got[: many.text_end], last.reason) == (shown, reason)
    assert (many.kept_len, many.num_tokens) == (one.kept_len, one.num_tokens)
    assert ends == sorted(ends)


@given(
    st.text("abcé", max_size=15), st.lists(st.text("abcé", min_size=1, max_size=4), min_size=1, max_size=3), st.data()
)
def test_the_result_depends_on_the_bytes_and_not_on_how_they_are_cut(
    content: str, stops: list[str], data: st.DataObject
) -> None:
    """Whatever the tokens, the cut is where a search over the growing text first finds a complete stop string."""
    raw, matcher = content.encode(), StopMatcher(stops)
    match, at = None, 0
    while at < len(raw) and match is None:
        size = data.draw(st.integers(1, 4))
        match = matcher.push(raw[at : at + size])
        at += size
        safe = matcher.shown_end
        assert match is not None or not any(s.encode() in raw[:safe] for s in stops)
    ends = [(raw.find(s.encode()) + len(s.encode()), raw.find(s.encode()), s) for s in stops if s.encode() in raw]
    if not ends:
        assert match is None
        return
    first = min(end for end, _, _ in ends)
    assert match is not None
    assert match.end == first
    assert match.start == min(start for end, start, _ in ends if end == match.end)
