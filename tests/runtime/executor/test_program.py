"""Programs against a port that the test answers by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sglang_lite.errors import CancelledError, KvOutOfMemoryError, ProgramError, RequestError
from sglang_lite.request_tree import (
    DecideOp,
    EndOp,
    Event,
    ForkOp,
    GenOp,
    JoinOp,
    OpDelta,
    OpDone,
    OpFailed,
    OpScored,
    RoleBeginOp,
    RoleEndOp,
    SamplingParams,
    SelectOp,
    TextOp,
)
from sglang_lite.runtime.executor.tree_executor import TreeExecutor
from sglang_lite.runtime.scheduler.messages import (
    AbortReq,
    AddReq,
    EndLease,
    FinishReason,
    Message,
    ReqOutput,
    TokenLogprob,
    Usage,
)
from tests.support.toy_text import END, START, toy_text

PARAMS = SamplingParams(max_new_tokens=8)


class HandPort:
    """Keeps requests until the test answers them."""

    def __init__(self) -> None:
        self.requests: dict[str, AddReq] = {}
        self.handlers: dict[str, Callable[[ReqOutput], None]] = {}
        self.messages: list[Message] = []
        self.prepared: list[SamplingParams] = []
        self._rids = itertools.count()

    def submit(self, req: AddReq, on_output: Callable[[ReqOutput], None]) -> None:
        self.requests[req.rid] = req
        self.handlers[req.rid] = on_output

    def send(self, message: Message) -> None:
        self.messages.append(message)

    def prepare_grammar(self, params: SamplingParams) -> None:
        self.prepared.append(params)

    def new_rid(self) -> str:
        return f"r{next(self._rids)}"

    def answer(self, rid: str, text: str, *, shown: int | None = None, reason: FinishReason | None = None) -> None:
        """End a generation with `text`, of which `shown` bytes stay."""
        data = text.encode()
        end = len(data) if shown is None else shown
        prompt_len = len(self.requests[rid].input_ids)
        usage = Usage(prompt_len, 0, prompt_len, len(data), known_len=prompt_len + max(len(data) - 1, 0))
        self.handlers[rid](
            ReqOutput(rid, tuple(data), data, end, finished=reason or FinishReason("length"), kept_len=end, usage=usage)
        )

    def fail(self, rid: str, error: Any) -> None:
        self.handlers[rid](ReqOutput(rid, finished=FinishReason("abort", error=error), usage=Usage(1, 0, 0, 0)))

    def score(self, rid: str, scores: tuple[tuple[float, ...], ...] | None, own: tuple[Any, ...] | None = None) -> None:
        self.handlers[rid](
            ReqOutput(rid, scores=scores, input_logprobs=own, finished=FinishReason("length"), usage=Usage(1, 0, 1, 0))
        )


class Bench:
    """One executor with one program and its events."""

    def __init__(self, *, add_bos: bool = False, context_len: int | None = None) -> None:
        self.port = HandPort()
        self.events: list[Event] = []
        self.executor = TreeExecutor(self.port, replace(toy_text(add_bos=add_bos), context_len=context_len))
        self.executor.open("p", self.events.append, seed=1)

    def append(self, *ops: Any) -> None:
        self.executor.append("p", ops)

    def done(self, op: int) -> OpDone:
        (event,) = [e for e in self.events if isinstance(e, OpDone | OpFailed) and e.op == op]
        assert isinstance(event, OpDone), event
        return event

    def failed(self, op: int) -> Exception:
        (event,) = [e for e in self.events if isinstance(e, OpDone | OpFailed) and e.op == op]
        assert isinstance(event, OpFailed), event
        return event.error

    def prompt(self, rid: str) -> bytes:
        ids = self.port.requests[rid].input_ids
        return b"".join(bytes([i]) if i < 256 else b"<%d>" % i for i in ids)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_text_is_joined_and_a_gen_takes_all_of_it(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "ab"), TextOp(2, 0, "cd"), GenOp(3, 0, "x", PARAMS), TextOp(4, 0, "!"))
    assert bench.prompt("r0") == b"abcd"
    assert bench.done(1).text == "ab"
    bench.port.answer("r0", "xy")
    assert bench.done(3).value == "xy"
    assert bench.done(3).kinds == ("sampled", "sampled")
    assert bench.done(4).text == "!"


def test_the_next_gen_continues_from_the_generated_ids(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "a"), GenOp(2, 0, "x", PARAMS), TextOp(3, 0, "b"), GenOp(4, 0, "y", PARAMS))
    assert not bench.port.requests["r0"].is_continuing
    bench.port.answer("r0", "xy")
    assert bench.prompt("r1") == b"axyb"
    assert bench.port.requests["r1"].is_continuing


def test_the_visible_rest_of_a_cut_token_begins_the_next_span(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "a"), GenOp(2, 0, "x", PARAMS), TextOp(3, 0, "b"), GenOp(4, 0, "y", PARAMS))
    data = b"hello"
    bench.port.handlers["r0"](
        ReqOutput("r0", tuple(data), data, 4, finished=FinishReason("stop", "o"), kept_len=3, usage=Usage(1, 0, 1, 5))
    )
    assert bench.done(2).value == "hell"
    assert bench.done(2).ids == tuple(b"hel")
    assert bench.prompt("r1") == b"ahellb"


def test_special_tokens_are_parsed_outside_roles_only_and_never_in_literals(bench: Bench) -> None:
    bench.append(
        TextOp(1, 0, "<|im_end|>"),
        TextOp(2, 0, "<|im_end|>", literal=True),
        RoleBeginOp(3, 0, "user"),
        TextOp(4, 0, "<|im_end|>"),
        RoleEndOp(5, 0),
        GenOp(6, 0, "x", PARAMS),
    )
    ids = bench.port.requests["r0"].input_ids
    assert ids[0] == END
    assert bytes(ids[1:11]) == b"<|im_end|>"
    assert ids.count(END) == 1 + 2  # the text's, the default system turn's and the user turn's


def test_role_blocks_are_the_templates_own(bench: Bench) -> None:
    bench.append(
        RoleBeginOp(1, 0, "user"),
        TextOp(2, 0, "Hi"),
        RoleEndOp(3, 0),
        RoleBeginOp(4, 0, "assistant"),
        GenOp(5, 0, "x", PARAMS),
        RoleEndOp(6, 0),
        RoleBeginOp(7, 0, "user"),
        TextOp(8, 0, "Bye"),
        RoleEndOp(9, 0),
        GenOp(10, 0, "y", PARAMS),
    )
    begin = b"<256>system\nBe kind.<257>\n<256>user\nHi<257>\n<256>assistant\n"
    assert bench.prompt("r0") == begin
    bench.port.answer("r0", "Hello")
    assert bench.prompt("r1") == begin + b"Hello<257>\n<256>user\nBye<257>\n"
    assert bench.done(1).text == "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n"


def test_a_begin_token_comes_once_and_only_before_plain_text() -> None:
    bench = Bench(add_bos=True)
    bench.append(TextOp(1, 0, "a"), GenOp(2, 0, "x", PARAMS), TextOp(3, 0, "b"), GenOp(4, 0, "y", PARAMS))
    bench.port.answer("r0", "x")
    assert bench.port.requests["r1"].input_ids == (START, *b"axb")


def test_an_empty_branch_refuses_to_generate(bench: Bench) -> None:
    bench.append(GenOp(1, 0, "x", PARAMS), TextOp(2, 0, "a"))
    assert isinstance(bench.failed(1), RequestError)
    assert bench.failed(2) is bench.failed(1)


def test_streamed_pieces_join_to_the_text(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "a"), GenOp(2, 0, "x", PARAMS, stream=True))
    data = "é!".encode()
    bench.port.handlers["r0"](ReqOutput("r0", tuple(data[:1]), data[:1], 1))
    bench.port.handlers["r0"](ReqOutput("r0", tuple(data[1:2]), data[1:2], 2))
    bench.port.handlers["r0"](
        ReqOutput(
            "r0", tuple(data[2:]), data[2:], 3, finished=FinishReason("length"), kept_len=3, usage=Usage(1, 0, 1, 3)
        )
    )
    assert [e.text for e in bench.events if isinstance(e, OpDelta)] == ["é", "!"]
    assert bench.done(2).value == "é!"


def test_fork_children_start_where_the_parent_stands(bench: Bench) -> None:
    bench.append(
        TextOp(1, 0, "ab"),
        GenOp(2, 0, "x", PARAMS),
        ForkOp(3, 0, (1, 2)),
        TextOp(4, 1, "L"),
        TextOp(5, 2, "R"),
        GenOp(6, 1, "l", PARAMS),
        GenOp(7, 2, "r", PARAMS),
        TextOp(8, 0, "P"),
        GenOp(9, 0, "p", PARAMS),
    )
    assert list(bench.port.requests) == ["r0"]
    bench.port.answer("r0", "x")
    assert sorted(bench.prompt(rid) for rid in ("r1", "r2", "r3")) == [b"abxL", b"abxP", b"abxR"]


def test_children_of_a_failed_parent_fail_with_the_same_cause(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "a"), GenOp(2, 0, "x", PARAMS), ForkOp(3, 0, (1,)), GenOp(4, 1, "y", PARAMS))
    cause = KvOutOfMemoryError("no page")
    bench.port.fail("r0", cause)
    assert bench.failed(2) is bench.failed(3) is bench.failed(4) is cause
    bench.append(TextOp(5, 1, "late"))
    assert bench.failed(5) is cause


def test_a_gather_join_is_no_barrier(bench: Bench) -> None:
    bench.append(
        TextOp(1, 0, "a"), ForkOp(2, 0, (1,)), GenOp(3, 1, "x", PARAMS), JoinOp(4, 0, (1,)), GenOp(5, 0, "y", PARAMS)
    )
    assert bench.done(4).text == ""
    assert len(bench.port.requests) == 2


def test_a_concat_join_appends_what_the_children_added(bench: Bench) -> None:
    bench.append(
        TextOp(1, 0, "a"),
        ForkOp(2, 0, (1, 2)),
        TextOp(3, 1, "L"),
        GenOp(4, 1, "x", PARAMS),
        TextOp(5, 2, "R"),
        JoinOp(6, 0, (1, 2), "concat"),
        GenOp(7, 0, "y", PARAMS),
    )
    assert len(bench.port.requests) == 1
    bench.port.answer("r0", "<|im_end|>")
    assert bench.done(6).text == "L<|im_end|>R"
    assert bench.prompt("r1") == b"aL<|im_end|>R"


def test_a_concat_join_of_idle_children_is_done_at_once(bench: Bench) -> None:
    """Nothing comes from them any more that could wake it; a gen after it is at the same place either way."""
    bench.append(
        TextOp(1, 0, "a"), ForkOp(2, 0, (1,)), TextOp(3, 1, "L"), JoinOp(4, 0, (1,), "concat"), GenOp(5, 0, "x", PARAMS)
    )
    assert bench.done(4).text == "L"
    assert bench.prompt("r0") == b"aL"
    late = Bench()
    late.append(TextOp(1, 0, "a"), ForkOp(2, 0, (1,)), GenOp(3, 1, "w", PARAMS), JoinOp(4, 0, (1,), "concat"))
    late.append(GenOp(5, 0, "x", PARAMS))
    late.port.answer("r0", "L")
    assert late.prompt("r1") == b"aL"
    assert late.port.requests["r1"].sampling.seed == bench.port.requests["r0"].sampling.seed


def test_cancelling_a_child_fails_the_join_that_waits_for_it(bench: Bench) -> None:
    bench.append(
        TextOp(1, 0, "a"), ForkOp(2, 0, (1,)), GenOp(3, 1, "x", PARAMS), JoinOp(4, 0, (1,), "concat"), TextOp(5, 0, "b")
    )
    bench.executor.cancel("p", [1])
    assert bench.failed(4) is bench.failed(5) is bench.failed(3)


def test_programs_may_be_deep(bench: Bench) -> None:
    """A thousand joins in a row, forks in forks, and then a failure that goes all the way down and up again."""
    count, ops = 1000, list[Any]()
    for number in range(1, count + 1):
        ops += [ForkOp(len(ops), 0, (number,)), TextOp(len(ops) + 1, number, "x")]
        ops.append(JoinOp(len(ops), 0, (number,), "concat"))
    bench.append(*ops)
    assert bench.done(ops[-1].id).text == "x"
    deep: list[Any] = [GenOp(len(ops), 0, "x", PARAMS)]
    for number in range(count):
        deep.append(ForkOp(len(ops) + len(deep), number and count + number, (count + number + 1,)))
    for number in range(count - 1, -1, -1):
        deep.append(JoinOp(len(ops) + len(deep), number and count + number, (count + number + 1,), "concat"))
    bench.append(*deep)
    cause = KvOutOfMemoryError("no page")
    bench.port.fail("r0", cause)
    assert all(bench.failed(op.id) is cause for op in deep[-3:])
    assert len([e for e in bench.events if isinstance(e, OpDone | OpFailed)]) == len(ops) + len(deep)


def test_a_concat_join_fails_with_its_child(bench: Bench) -> None:
    bench.append(
        TextOp(1, 0, "a"), ForkOp(2, 0, (1,)), GenOp(3, 1, "x", PARAMS), JoinOp(4, 0, (1,), "concat"), TextOp(5, 0, "b")
    )
    cause = KvOutOfMemoryError("no page")
    bench.port.fail("r0", cause)
    assert bench.failed(4) is bench.failed(5) is cause


def test_select_scores_and_appends_exactly_the_choices_ids(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "a"), SelectOp(2, 0, "c", ("yes", "no")), GenOp(3, 0, "x", PARAMS))
    assert bench.port.requests["r0"].choices == (tuple(b"yes"), tuple(b"no"))
    bench.port.score("r0", ((-1.0, -1.0, -1.0), (-0.5, -0.7)))
    assert bench.done(2).value == "no"
    assert bench.done(2).meta["normalized_prompt_logprobs"] == [-1.0, -0.6]
    assert bench.done(2).meta["input_token_logprobs"][1] == [(-0.5, ord("n"), "n"), (-0.7, ord("o"), "o")]
    assert bench.prompt("r1") == b"ano"


def test_an_empty_choice_is_scored_by_the_end_token_and_appends_nothing(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "a"), SelectOp(2, 0, "c", ("yes", "")), GenOp(3, 0, "x", PARAMS))
    assert bench.port.requests["r0"].choices == (tuple(b"yes"), (END,))
    bench.port.score("r0", ((-1.0, -1.0, -1.0), (-0.5,)))
    assert bench.done(2).value == ""
    assert bench.prompt("r1") == b"a"


def test_unconditional_scores_come_from_the_choices_alone(bench: Bench) -> None:
    op = SelectOp(2, 0, "c", ("ab", "cd"), "unconditional_likelihood_normalized")
    bench.append(TextOp(1, 0, "x"), op)
    assert [bench.prompt(rid) for rid in ("r0", "r1", "r2")] == [b"x", b"ab", b"cd"]
    bench.port.score("r0", ((-1.0, -1.0), (-2.0, -2.0)))
    bench.port.score("r1", None, (TokenLogprob(97, None), TokenLogprob(98, -0.1)))
    bench.port.score("r2", None, (TokenLogprob(99, None), TokenLogprob(100, -9.0)))
    assert bench.done(2).value == "cd"
    assert bench.done(2).meta["unconditional_token_logprobs"] == [
        [(None, 97, "a"), (-0.1, 98, "b")],
        [(None, 99, "c"), (-9.0, 100, "d")],
    ]
    assert bench.done(2).meta["normalized_unconditional_prompt_logprobs"] == pytest.approx([-0.95, 2.5])


def test_a_client_select_waits_for_the_clients_decision(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "x"), SelectOp(2, 0, "c", ("ab", "cd"), "client"), TextOp(3, 0, "!"))
    bench.port.score("r0", ((-1.0, -1.0), (-2.0, -2.0)))
    (scored,) = [e for e in bench.events if isinstance(e, OpScored)]
    assert scored.meta["normalized_prompt_logprobs"] == [-1.0, -2.0]
    bench.append(DecideOp(4, 0, select=2, index=1))
    assert bench.done(2).value == "cd"
    assert bench.done(3).text == "!"


def test_a_client_select_gets_unconditional_rows_of_the_same_form(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "x"), SelectOp(2, 0, "c", ("ab",), "client", needs_unconditional=True))
    bench.port.score("r0", ((-1.0, -2.0),))
    bench.port.score("r1", None, (TokenLogprob(97, None), TokenLogprob(98, -0.1)))
    (scored,) = [e for e in bench.events if isinstance(e, OpScored)]
    assert scored.meta["input_token_logprobs"] == [[(-1.0, 97, "a"), (-2.0, 98, "b")]]
    assert scored.meta["unconditional_token_logprobs"] == [[(None, 97, "a"), (-0.1, 98, "b")]]


def test_n_samples_differ_in_seed_and_the_first_continues(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "a"), GenOp(2, 0, "x", PARAMS.with_(n=2)), GenOp(3, 0, "y", PARAMS))
    seeds = {bench.port.requests[rid].sampling.seed for rid in ("r0", "r1")}
    assert len(seeds) == 2
    bench.port.answer("r1", "B")
    bench.port.answer("r0", "A")
    assert bench.done(2).value == ["A", "B"]
    assert bench.prompt("r2") == b"aA"


def test_seeds_follow_from_the_programs_seed_and_the_place() -> None:
    def seeds() -> list[int | None]:
        bench = Bench()
        bench.append(TextOp(1, 0, "a"), ForkOp(2, 0, (1, 2)), *(GenOp(3 + i, i, "x", PARAMS) for i in range(3)))
        return [req.sampling.seed for req in bench.port.requests.values()]

    assert seeds() == seeds()
    assert len(set(seeds())) == 3


def test_cancel_ends_a_branch_and_its_descendants_and_aborts_their_requests(bench: Bench) -> None:
    bench.append(
        TextOp(1, 0, "a"),
        ForkOp(2, 0, (1, 2)),
        GenOp(3, 1, "x", PARAMS),
        ForkOp(4, 1, (3,)),
        GenOp(5, 3, "y", PARAMS),
        GenOp(6, 2, "z", PARAMS),
    )
    bench.executor.cancel("p", [1])
    assert isinstance(bench.failed(3), CancelledError)
    assert isinstance(bench.failed(5), CancelledError)
    assert [m.rid for m in bench.port.messages if isinstance(m, AbortReq)] == ["r0"]
    bench.port.answer("r1", "ok")
    assert bench.done(6).value == "ok"
    bench.port.answer("r0", "late")  # what was on its way when the abort was sent
    assert isinstance(bench.failed(3), CancelledError)


def test_an_op_that_breaks_a_rule_fails_with_what_follows(bench: Bench) -> None:
    bench.append(RoleBeginOp(1, 0, "user"), RoleBeginOp(2, 0, "user"), TextOp(3, 0, "x"))
    assert isinstance(bench.failed(2), ProgramError)
    assert "Nested roles are not allowed" in str(bench.failed(2))
    assert bench.failed(3) is bench.failed(2)


def test_a_closed_program_ends_when_its_ops_are_done(bench: Bench) -> None:
    bench.append(TextOp(1, 0, "a"), GenOp(2, 0, "x", PARAMS), EndOp(3, 0))
    bench.executor.close("p")
    assert bench.executor.num_programs == 1
    bench.port.answer("r0", "x")
    bench.executor.sweep()
    assert bench.executor.num_programs == 0
    assert EndLease("p/0") in bench.port.messages


def test_every_op_has_exactly_one_end(bench: Bench) -> None:
    """Also when the program is cancelled in the middle of everything."""
    bench.append(
        TextOp(1, 0, "a"),
        ForkOp(2, 0, (1,)),
        GenOp(3, 1, "x", PARAMS),
        TextOp(4, 1, "b"),
        SelectOp(5, 0, "c", ("y", "n")),
        JoinOp(6, 0, (1,), "concat"),
        TextOp(7, 0, "z"),
    )
    bench.executor.cancel("p", None)
    ends = [e.op for e in bench.events if isinstance(e, OpDone | OpFailed)]
    assert sorted(ends) == [1, 2, 3, 4, 5, 6, 7]


def test_seeds_follow_the_place_of_an_op_whatever_the_ids_are_and_are_told() -> None:
    def seeds(branches: tuple[int, int], first: int) -> list[int]:
        bench = Bench()
        bench.append(TextOp(0, 0, "a"), ForkOp(1, 0, branches))
        one, two = branches if first == 0 else branches[::-1]
        bench.append(GenOp(2, one, "x", PARAMS))
        bench.append(GenOp(3, two, "x", PARAMS.with_(n=2)))
        for rid in bench.port.requests:
            bench.port.answer(rid, "y")
        metas = [bench.done(2).meta, *bench.done(3).meta["samples"]]
        told = [meta["seed"] for meta in metas]
        assert told == [req.sampling.seed for req in bench.port.requests.values()]
        return told

    plain, renamed = seeds((1, 2), 0), seeds((9, 4), 0)
    assert len(set(plain)) == 3
    assert renamed == plain
    assert seeds((1, 2), 1)[0] == plain[1]  # sent first, but the second child all the same
