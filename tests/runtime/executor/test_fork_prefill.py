from __future__ import annotations

from collections.abc import Sequence

from sglang_lite.errors import CancelledError, KvOutOfMemoryError
from sglang_lite.request_tree import ForkOp, GenOp, JoinOp, Op, RefOp, RoleEndOp, SamplingParams, TextOp
from sglang_lite.runtime.executor.fork_prefill import MIN_SHARED_TOKENS
from sglang_lite.runtime.scheduler.messages import AbortReq, EndLease, FinishReason, ReqOutput, Usage
from tests.runtime.executor.test_program import Bench
from tests.runtime.executor.test_random_programs import StepPort

PARAMS = SamplingParams(max_new_tokens=4)
SHARED = "s" * 20


def forked(shared: str = SHARED) -> list[Op]:
    return [
        TextOp(0, 0, shared), ForkOp(1, 0, (1, 2)), TextOp(2, 1, "a"), GenOp(3, 1, "x", PARAMS), TextOp(4, 2, "b"),
        GenOp(5, 2, "x", PARAMS),
    ]  # fmt: skip


def end_prefill(bench: Bench, rid: str = "r0", computed: int = 20) -> None:
    bench.port.handlers[rid](ReqOutput(rid, finished=FinishReason("length"), usage=Usage(20, 0, computed, 0)))


def test_children_wait_for_one_prefill_of_what_they_share() -> None:
    bench = Bench()
    bench.append(*forked())
    (prefill,) = bench.port.requests.values()
    assert (bench.prompt("r0"), prefill.sampling.max_new_tokens) == (SHARED.encode(), 0)
    bench.done(1)  # the fork is no barrier: it is done, and so is what its parent does next
    end_prefill(bench)
    assert [bench.prompt(rid) for rid in ("r1", "r2")] == [f"{SHARED}a".encode(), f"{SHARED}b".encode()]
    assert bench.port.requests["r1"].is_continuing


def test_its_cost_is_told_once_with_the_first_child() -> None:
    bench = Bench()
    bench.append(*forked())
    end_prefill(bench)
    for rid, text in (("r1", "x"), ("r2", "y")):
        usage = Usage(21, 20, 1, 1)
        bench.port.handlers[rid](
            ReqOutput(rid, (120,), text.encode(), 1, finished=FinishReason("length"), kept_len=1, usage=usage)
        )
    told = [(bench.done(op).meta["computed_tokens"], bench.done(op).meta["cached_tokens"]) for op in (3, 5)]
    assert told == [(21, 0), (1, 20)]


def test_a_short_text_and_a_single_runner_are_not_worth_it() -> None:
    for ops in (forked("s" * (MIN_SHARED_TOKENS - 1)), forked()[:4]):
        bench = Bench()
        bench.append(*ops)
        assert all(req.sampling.max_new_tokens for req in bench.port.requests.values())
        assert bench.port.requests


def test_what_was_computed_for_the_parent_is_not_computed_again() -> None:
    bench = Bench()
    bench.append(TextOp(0, 0, SHARED), GenOp(9, 0, "first", PARAMS))
    bench.port.answer("r0", "abcd")
    bench.append(*forked()[1:])
    assert [bench.prompt(rid) for rid in ("r1", "r2")] == [f"{SHARED}abcda".encode(), f"{SHARED}abcdb".encode()]


def test_what_was_forced_and_not_computed_for_the_parent_is_computed_once_for_all() -> None:
    bench = Bench()
    bench.append(TextOp(0, 0, SHARED), GenOp(9, 0, "first", PARAMS))
    data = b"f" * MIN_SHARED_TOKENS
    usage = Usage(20, 0, 20, len(data), forced_tokens=len(data), known_len=20)
    bench.port.handlers["r0"](
        ReqOutput("r0", tuple(data), data, len(data), finished=FinishReason("stop"), kept_len=len(data), usage=usage)
    )
    bench.append(*forked()[1:])
    assert list(bench.port.requests) == ["r0", "r1"]
    assert bench.prompt("r1") == SHARED.encode() + data


def test_a_failed_prefill_lets_the_children_meet_the_error_themselves() -> None:
    bench = Bench()
    bench.append(*forked())
    bench.port.fail("r0", KvOutOfMemoryError("full"))
    assert list(bench.port.requests) == ["r0", "r1", "r2"]


def test_cancelled_children_stop_the_prefill() -> None:
    bench = Bench()
    bench.append(*forked())
    bench.executor.cancel("p", [1])
    assert not [m for m in bench.port.messages if isinstance(m, AbortReq)]
    bench.executor.cancel("p", [2])
    assert [m for m in bench.port.messages if isinstance(m, AbortReq)] == [AbortReq("r0")]
    assert isinstance(bench.failed(5), CancelledError)
    end_prefill(bench)
    assert list(bench.port.requests) == ["r0"]


def test_a_joined_child_that_has_not_run_keeps_the_shared_prefix_leased() -> None:
    """In a closed tree the join is there before any child has run."""
    bench = Bench()
    bench.append(*forked(), JoinOp(6, 0, (1, 2)), RefOp(7, 0, 5), GenOp(8, 0, "sum", PARAMS))
    end_prefill(bench)
    bench.port.answer("r1", "x")
    assert EndLease("p/0") not in bench.port.messages
    bench.port.answer("r2", "y")
    assert bench.prompt("r3") == f"{SHARED}y".encode()


def computed_by(ops: Sequence[Op], pool_pages: int = 60) -> tuple[int, StepPort]:
    """Prompt tokens computed for a program on the real scheduler and memory."""
    port = StepPort(pool_pages)
    port.executor.open("p", lambda event: None, 7)
    port.executor.append("p", list(ops))
    port.executor.close("p")
    while port.has_work:
        port.step()
    return port.scheduler.statistics().computed_tokens, port


def test_every_token_that_children_share_is_computed_once() -> None:
    """Pages have 4 tokens; without the prefill each child would compute the head of the page in which they part."""
    shared = "s" * 19
    ops: list[Op] = [TextOp(0, 0, shared), ForkOp(1, 0, (1, 2, 3))]
    for child in (1, 2, 3):
        ops += [
            TextOp(10 * child, child, "abc"[child - 1]),
            GenOp(10 * child + 1, child, "x", PARAMS.with_(ignore_eos=True)),
        ]
    computed, port = computed_by(ops)
    assert computed == 19 + 3
    prompts = [len(req.input_ids) for req in port.requests.values()]
    assert prompts == [19, 20, 20, 20]


def test_gen_text_gen_computes_only_what_is_new() -> None:
    """The last token of the first gen has no KV yet; all the rest of its branch is found again."""
    params = PARAMS.with_(ignore_eos=True)
    computed, port = computed_by(
        [TextOp(0, 0, "s" * 18), GenOp(1, 0, "x", params), TextOp(2, 0, "ab"), GenOp(3, 0, "y", params)]
    )
    assert computed == 18 + 1 + 2
    assert [req.is_continuing for req in port.requests.values()] == [False, True]


def siblings(*texts: str) -> list[Op]:
    ops: list[Op] = [TextOp(0, 0, SHARED), ForkOp(1, 0, tuple(range(1, len(texts) + 1)))]
    for child, text in enumerate(texts, 1):
        ops += [TextOp(10 * child, child, text), GenOp(10 * child + 1, child, "x", PARAMS.with_(ignore_eos=True))]
    return ops


def test_how_the_childrens_own_texts_begin_alike_is_computed_once_too() -> None:
    bench = Bench()
    bench.append(*siblings("propose one", "propose two", "propose on"))
    assert bench.prompt("r0") == f"{SHARED}propose ".encode()
    bench.done(10)  # a child's text needs no request
    end_prefill(bench)
    assert [bench.prompt(rid) for rid in ("r1", "r2", "r3")] == [
        f"{SHARED}propose {end}".encode() for end in ("one", "two", "on")
    ]


def test_equal_prompts_leave_each_child_its_last_token() -> None:
    """Its distribution is wanted, so it is computed by each; with the prefill that is all of it."""
    computed, port = computed_by(siblings(*["the same words for all"] * 3))
    prompt = len(SHARED) + len("the same words for all")
    assert [len(req.input_ids) for req in port.requests.values()] == [prompt - 1, prompt, prompt, prompt]
    assert computed == prompt - 1 + 3


def test_a_child_that_waits_for_a_value_is_not_looked_into() -> None:
    """What it will say is not known, and may be tokenised together with what stands there already."""
    bench = Bench()
    ops = siblings("propose one", "propose two")
    bench.append(*ops[:2], *ops[4:], ops[2], RefOp(50, 1, 21), ops[3])
    assert bench.prompt("r0") == SHARED.encode()


def test_a_value_that_is_known_at_the_fork_counts_as_text() -> None:
    bench = Bench()
    bench.append(TextOp(0, 0, SHARED), GenOp(1, 0, "first", PARAMS))
    bench.port.answer("r0", "abcd")
    ops: list[Op] = [ForkOp(2, 0, (1, 2))]
    for child in (1, 2):
        ops += [TextOp(10 * child, child, "more on "), RefOp(10 * child + 1, child, 1)]
        ops += [TextOp(10 * child + 2, child, "!?"[child - 1]), GenOp(10 * child + 3, child, "x", PARAMS)]
    bench.append(*ops)
    assert bench.prompt("r1") == f"{SHARED}abcdmore on abcd".encode()


def test_a_failed_child_does_not_shorten_what_the_others_share() -> None:
    bench = Bench()
    ops = siblings("propose", "propose one", "propose two")
    bench.append(*ops[:2], RoleEndOp(60, 1), *ops[2:])
    bench.failed(60)
    assert bench.prompt("r0") == f"{SHARED}propose ".encode()
