"""Ops and events survive the way through JSON, and nothing that is not one comes in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_lite import errors, request_tree
from sglang_lite.errors import ExecutionError, GrammarError, RequestError
from sglang_lite.op_json import (
    VERSION,
    check_version,
    error_from_json,
    error_to_json,
    event_from_json,
    event_to_json,
    op_from_json,
    op_to_json,
)
from sglang_lite.request_tree import (
    AcceptOp,
    ArgOp,
    CountOp,
    DecideOp,
    EndOp,
    ForkOp,
    GenOp,
    JoinOp,
    LogprobParams,
    MarkOp,
    Op,
    OpDelta,
    OpDone,
    OpFailed,
    OpHeld,
    OpScored,
    RefOp,
    RefuseOp,
    RetryOp,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SamplingParams,
    SelectOp,
    TemplateOp,
    TextOp,
)

number = st.integers(0, 10_000)
text = st.text(max_size=20)
params = st.builds(
    SamplingParams,
    max_new_tokens=st.none() | number,
    n=st.integers(1, 4),
    stop=st.lists(st.text(min_size=1, max_size=5), max_size=3).map(tuple),
    temperature=st.floats(0, 2),
    logit_bias=st.lists(st.tuples(number, st.floats(-100, 100)), max_size=3, unique_by=lambda pair: pair[0]).map(
        lambda pairs: tuple(sorted(pairs))
    ),
    ignore_eos=st.booleans(),
    seed=st.none() | number,
    regex=st.none() | text,
    json_whitespace=st.sampled_from([None, "compact", "any"]),
    json_strict=st.booleans(),
    jump_forward=st.sampled_from([None, "off", "force"]),
    thinking=st.none() | st.just(("<think>", "</think>")),
)
logprob = st.none() | st.builds(
    LogprobParams, start_len=st.none() | number, top_num=number, token_ids=st.lists(number, max_size=3).map(tuple)
)
children = st.lists(number, max_size=4).map(tuple)
ops = st.one_of(
    st.builds(TextOp, number, number, text, st.booleans()),
    st.builds(RoleBeginOp, number, number, text, st.none() | st.just('{"name": "x"}')),
    st.builds(RoleEndOp, number, number),
    st.builds(GenOp, number, number, st.none() | text, params, logprob, st.booleans(), st.booleans()),
    st.builds(
        SelectOp, number, number, st.none() | text, st.lists(text, max_size=4).map(tuple), st.sampled_from(["client"])
    ),
    st.builds(DecideOp, number, number, number, number),
    st.builds(ForkOp, number, number, children),
    st.builds(
        JoinOp,
        number,
        number,
        children,
        st.sampled_from(["gather", "concat"]),
        st.none() | number,
        st.none() | text,
    ),
    st.builds(TemplateOp, number, number, st.just('{"tools": null}')),
    st.builds(AcceptOp, number, number, number),
    st.builds(RetryOp, number, number, number, text, st.none() | params, st.booleans()),
    st.builds(RefuseOp, number, number, number, text),
    st.builds(MarkOp, number, number),
    st.builds(RewindOp, number, number, number),
    st.builds(CountOp, number, number),
    st.builds(RefOp, number, number, number, st.none() | st.just(("<think>", "</think>")), st.booleans()),
    st.builds(ArgOp, number, number, text),
    st.builds(EndOp, number, number),
)


def travel(data: Any) -> Any:
    return json.loads(json.dumps(data, allow_nan=False))


@given(ops)
def test_an_op_comes_back_as_it_was(op: Op) -> None:
    assert op_from_json(travel(op_to_json(op))) == op


def test_every_kind_of_op_travels() -> None:
    """A new op of the contract must get its JSON form."""
    kinds = [
        kind for name in request_tree.__all__ if name != "Op" and isinstance(kind := vars(request_tree)[name], type)
    ]
    of_ops = [kind for kind in kinds if issubclass(kind, Op)]
    assert len(of_ops) >= 17
    for kind in of_ops:
        assert op_from_json(travel(op_to_json(_plain(kind)))) == _plain(kind)


def _plain(kind: type[Op]) -> Op:
    more: dict[type[Op], tuple[Any, ...]] = {
        TextOp: ("",), RoleBeginOp: ("user",), GenOp: (None, SamplingParams()), SelectOp: (None, ("a",)), DecideOp: (0, 0),
        ForkOp: ((1,),), JoinOp: ((1,),), RefOp: (0,), ArgOp: ("x",), AcceptOp: (0,), RetryOp: (0,), RefuseOp: (0, "why"),
        RewindOp: (0,), TemplateOp: ("{}",),
    }  # fmt: skip
    return kind(0, 0, *more.get(kind, ()))


META = {
    "id": "r1",
    "finish_reason": {"type": "stop", "matched": 2},
    "output_token_logprobs": [(-1.5, 7, "a"), (-0.5, -1, None)],
    "output_top_logprobs": [[(-1.5, 7, "a"), (-2.0, 8, "b")]],
    "input_top_logprobs": [None, [(-1.5, 7, None)]],
    "normalized_prompt_logprobs": [-1.0, -2.0, -3.0],
}


@pytest.mark.parametrize(
    "event",
    [
        OpDelta(1, "é\n"),
        OpDone(2, "t", ["a", "b"], (1, 2), ("sampled", "forced"), META),
        OpDone(3),
        OpScored(4, META),
        OpHeld(5, "t", (1, 2), ("sampled", "forced"), META),
        OpHeld(6, ""),
    ],
)
def test_an_event_comes_back_as_it_was(event: Any) -> None:
    """Entries of log-probabilities to the type."""
    assert event_from_json(travel(event_to_json(event))) == event


def test_infinities_become_numbers() -> None:
    event = event_to_json(OpDone(1, meta={"output_token_logprobs": [(float("-inf"), 1, None)]}))
    assert travel(event)["meta"]["output_token_logprobs"] == [[-9999.0, 1, None]]


@pytest.mark.parametrize(
    "kind", [errors.GrammarError, errors.CancelledError, errors.ContextLengthError, errors.DeadEndError]
)
def test_an_error_keeps_its_type_and_words(kind: type[Exception]) -> None:
    failed = event_from_json(travel(event_to_json(OpFailed(5, kind("why")))))
    assert isinstance(failed, OpFailed)
    assert (type(failed.error), str(failed.error)) == (kind, "why")


def test_errors_of_neither_side_tell_no_secret() -> None:
    assert "secret" not in error_to_json(KeyError("secret"))["message"]
    assert error_from_json({"type": "FutureError", "message": "m"}).args == ("FutureError: m",)
    assert isinstance(error_from_json({"type": "FutureError", "message": "m"}), ExecutionError)
    assert isinstance(error_from_json(error_to_json(GrammarError("x"))), GrammarError)


GOOD = {"op": "gen", "id": 1, "branch": 0, "name": "a", "params": {}}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (5, "expected an object"),
        ({}, "'op' is one of"),
        ({"op": []}, "'op' is one of"),
        (GOOD | {"op": "odd"}, "'op' is one of"),
        (GOOD | {"more": 1}, "unknown"),
        (GOOD | {"id": -1}, "id=-1"),
        (GOOD | {"id": True}, "id=True"),
        (GOOD | {"branch": "0"}, "branch='0'"),
        (GOOD | {"params": {"temperature": "hot"}}, "temperature='hot'"),
        (GOOD | {"params": {"logit_bias": 5}}, "logit_bias"),
        (GOOD | {"params": {"stop": 1.5}}, "sampling parameters"),
        (GOOD | {"params": []}, "params"),
        (GOOD | {"logprob": {"odd": 1}}, "odd"),
        (GOOD | {"logprob": {"top_num": -1}}, "top_num=-1"),
        ({"op": "fork", "id": 1, "branch": 0, "children": [1, "2"]}, "children"),
        ({"op": "select", "id": 1, "branch": 0, "name": None, "choices": [1]}, "choices"),
        ({"op": "select", "id": 1, "branch": 0, "name": None, "choices": ["a"], "method": "odd"}, "method"),
        ({"op": "gen", "id": 1, "branch": 0, "params": {}}, "name"),
        ({"op": "ref", "id": 1, "branch": 0, "target": 0, "marks": ["a"]}, "marks"),
        (GOOD | {"params": None}, "params=None"),
        (GOOD | {"hold": 1}, "hold=1"),
        ({"op": "join", "id": 1, "branch": 0, "children": [1], "first": "1"}, "first='1'"),
        ({"op": "join", "id": 1, "branch": 0, "children": [1], "vote": 1}, "vote=1"),
        ({"op": "retry", "id": 1, "branch": 0, "gen": 0, "keep": "no"}, "keep='no'"),
        ({"op": "retry", "id": 1, "branch": 0, "gen": 0, "params": {"odd": 1}}, "odd"),
        ({"op": "refuse", "id": 1, "branch": 0, "gen": 0}, "message"),
        ({"op": "accept", "id": 1, "branch": 0, "gen": -1}, "gen=-1"),
        ({"op": "rewind", "id": 1, "branch": 0}, "mark"),
    ],
)
def test_what_is_no_op_is_refused_by_its_fault(data: Any, words: str) -> None:
    with pytest.raises(RequestError) as refused:
        op_from_json(data)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "data", [None, {}, {"event": "odd", "op": 1}, {"event": "delta", "op": 1}, {"event": "done", "op": 1, "x": 2}]
)
def test_what_is_no_event_is_refused(data: Any) -> None:
    with pytest.raises(RequestError, match="reading an event"):
        event_from_json(data)


def test_versions_must_be_equal() -> None:
    check_version(VERSION)
    check_version(None)
    for other in (0, 2, "1", True):
        with pytest.raises(RequestError, match="expected 1"):
            check_version(other)
