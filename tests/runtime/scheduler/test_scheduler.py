from __future__ import annotations

import pytest

from sglang_lite.errors import CancelledError, DeadEndError, GrammarError, KvOutOfMemoryError, RequestError
from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq, EndLease, FinishReason, GrammarReady, SetNextUse
from sglang_lite.runtime.scheduler.plan import ForwardMode, StepResult
from sglang_lite.runtime.scheduler.req import ReqState
from tests.support.fake_grammar import FakeGrammar
from tests.support.scheduler_harness import EOS, VISIBLE, VOCAB, Harness, config, greedy

LONG = tuple(2 + i % 9 for i in range(30))


def test_a_request_is_prefilled_decoded_and_ended_with_its_counts() -> None:
    harness = Harness()
    harness.drain(AddReq("r", LONG, greedy(4)))
    harness.check_idle()
    usage = harness.finals["r"].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.cached_tokens, usage.computed_tokens, usage.completion_tokens) == (30, 0, 30, 4)
    assert [plan.mode for plan in harness.plans] == [ForwardMode.EXTEND, *[ForwardMode.DECODE] * 3]


def test_a_sequence_that_goes_on_finds_all_but_its_last_token() -> None:
    """gen, then text, then gen: what the first request computed is there, a page's head included."""
    harness = Harness(page_size=16)
    first = harness.drain(AddReq("a", (2, 3, 4, 5, 6), greedy(4)))["a"]
    harness.drain(AddReq("b", (2, 3, 4, 5, 6, *first.ids), greedy(2), is_continuing=True))
    harness.check_idle()
    assert harness.finals["b"].usage.cached_tokens == 8  # type: ignore[union-attr]


def test_prefill_only_gives_no_token() -> None:
    harness = Harness()
    harness.drain(AddReq("r", LONG, greedy(0), logprob=LogprobParams(start_len=28)))
    final = harness.finals["r"]
    assert (final.ids, final.reason) == ([], FinishReason("length"))
    assert [entry.token_id for entry in final.input_logprobs or ()] == list(LONG[28:])
    harness.check_idle()


def test_new_tokens_beyond_the_context_are_cut_off_as_length() -> None:
    harness = Harness(config(context_length=33))
    harness.drain(AddReq("r", LONG, greedy(1000)))
    assert len(harness.finals["r"].ids) == 3
    assert harness.finals["r"].reason == FinishReason("length")
    harness.check_idle()


@pytest.mark.parametrize(
    "place", ["waiting", "waits for grammar", "chunked", "running", "scoring", "finished", "unknown"]
)
@pytest.mark.parametrize("in_flight", [False, True])
def test_abort_works_wherever_the_request_is(place: str, in_flight: bool) -> None:
    harness = Harness(config(max_running_requests=1, chunked_prefill_size=8, schedule_policy="fcfs"))
    other = AddReq("other", (9, 8, 7), greedy(20))
    victim = AddReq("victim", LONG, greedy(20))
    if place == "waiting":
        harness.step(other, victim)
    elif place == "waits for grammar":
        harness.step(AddReq("victim", LONG, greedy(20), waits_for_grammar=True), other)
    elif place == "chunked":
        harness.step(victim, other)
    elif place == "running":
        harness.step(AddReq("victim", LONG[:5], greedy(20)), other)
        harness.step()
    elif place == "scoring":
        harness.step(AddReq("victim", LONG[:5], greedy(), choices=(LONG, LONG[1:])), other)
        harness.step()
    elif place == "finished":
        harness.drain(AddReq("victim", LONG[:5], greedy(2)))
        harness.step(other)
    else:
        harness.step(other)
    abort = AbortReq("victim", CancelledError("a test ends it"))
    before = harness.finals["victim"].text if "victim" in harness.finals else b""
    if in_flight:
        harness.step(in_flight=[abort])
    else:
        harness.step(abort)
    assert not harness.scheduler.is_known("victim")
    if place not in ("finished", "unknown"):
        final = harness.finals["victim"]
        assert final.reason == FinishReason("abort", error=abort.error)
        assert final.text == before
    harness.step(abort, AbortReq(""))
    harness.drain()
    harness.check_idle()
    assert harness.finals["other"].error is None


def test_an_id_in_use_is_refused_and_nothing_is_taken() -> None:
    harness = Harness()
    harness.step(AddReq("r", (2, 3), greedy()))
    with pytest.raises(RequestError, match=r"\['r'\] are in use"):
        harness.scheduler.receive([AddReq("new", (2,), greedy()), AddReq("r", (2, 3), greedy())])
    with pytest.raises(RequestError, match=r"\['twice'\]"):
        harness.scheduler.receive([AddReq("twice", (2,), greedy()), AddReq("twice", (2,), greedy())])
    assert not harness.scheduler.is_known("new")
    harness.drain()
    harness.check_idle()


def test_the_id_of_an_ended_request_can_be_used_again() -> None:
    harness = Harness()
    harness.drain(AddReq("r", (2, 3), greedy()))
    del harness.finals["r"]
    harness.drain(AddReq("r", (4, 5), greedy()))
    harness.check_idle()


@pytest.mark.parametrize("batching", ["prefill-first", "mixed", "decode-first"])
def test_two_that_do_not_fit_together_both_end_with_their_own_tokens(batching: str) -> None:
    """One is paused and resumed; its stream goes on where it was."""
    harness = Harness(config(batching=batching, schedule_conservativeness=0.05), num_pages=10, page_size=4)
    params = greedy(20, ignore_eos=False, min_new_tokens=20)
    harness.drain(AddReq("a", (2, 3, 4), params), AddReq("b", (5, 6, 7, 8), params))
    harness.check_idle()
    assert harness.scheduler.statistics().retractions >= 1
    assert sum(final.usage.retractions for final in harness.finals.values()) >= 1  # type: ignore[union-attr]


def test_the_victim_has_the_least_output_then_the_longest_prompt_then_came_last() -> None:
    harness = Harness(num_pages=200)
    harness.step(AddReq("most output", LONG, greedy(30)))
    harness.step()
    adds = [("short", 3), ("long", 9), ("long too", 9), ("short too", 3)]
    harness.step(*[AddReq(rid, (2 + i,) * n, greedy(30)) for i, (rid, n) in enumerate(adds)])
    gone = []
    while (victim := harness.scheduler._live.victim(())) is not None:
        gone.append(victim.rid)
        harness.scheduler.retract(victim.rid)
    assert gone == ["long too", "long", "short too", "short"]
    harness.drain()
    harness.check_idle()


def test_the_last_one_that_cannot_grow_ends_with_what_it_has() -> None:
    harness = Harness(config(context_length=200), num_pages=9, page_size=4)
    stop = "abéédefghijkl"
    harness.drain(AddReq("r", (2, 3, 4), greedy(100, stop_regex=(stop,))), AddReq("after", (5, 6), greedy(3)))
    final = harness.finals["r"]
    assert final.text == final.data, "what was held back for a stop is shown"
    assert isinstance(final.error, KvOutOfMemoryError)
    assert len(final.ids) == 30
    with pytest.raises(KvOutOfMemoryError, match="one more KV page, the whole pool has 32"):
        raise final.error
    assert harness.finals["after"].error is None
    harness.check_idle()


def test_a_retracted_request_that_outgrew_the_pool_ends_with_an_error() -> None:
    """Its prompt filled the pool, another shares it; retracted, it has one token too many to come back."""
    harness = Harness(config(schedule_conservativeness=0.01), num_pages=5, page_size=4)
    prompt = LONG[:16]
    harness.step(AddReq("full", prompt, greedy(5)))
    assert harness.scheduler.retract("full")
    harness.drain(AddReq("small", prompt[:4], greedy(2)))
    assert isinstance(harness.finals["full"].error, KvOutOfMemoryError)
    assert harness.finals["small"].error is None
    harness.check_idle()


def test_a_dead_end_ends_only_its_request() -> None:
    harness = Harness(fail_rids=["bad"])
    harness.drain(AddReq("bad", (2, 3), greedy()), AddReq("good", (2, 4), greedy()))
    assert isinstance(harness.finals["bad"].error, DeadEndError)
    harness.check_idle()


@pytest.mark.parametrize("choices", [((2, 3, 4), (2, 5, 6, 7), (9, 9)), None])
def test_a_failed_row_ends_a_scoring_or_chunked_request_once(choices: tuple[tuple[int, ...], ...] | None) -> None:
    harness = Harness(config(chunked_prefill_size=4))
    harness.step(AddReq("bad", LONG[:3] if choices else LONG, greedy(), choices=choices))
    harness.runner.fail_rids.add("bad")
    harness.drain(AddReq("good", (2, 4), greedy()))
    assert isinstance(harness.finals["bad"].error, DeadEndError)
    harness.check_idle()


def test_a_late_grammar_starts_its_request_and_a_failed_one_ends_only_it() -> None:
    harness = Harness()
    error = GrammarError("compiling '(': it does not end")
    harness.step(
        AddReq("late", (2, 3), greedy(), waits_for_grammar=True),
        AddReq("bad", (2, 3), greedy(), waits_for_grammar=True),
        AddReq("plain", (2, 3), greedy(2)),
    )
    harness.drain()
    assert set(harness.finals) == {"plain"}
    assert harness.scheduler.statistics().waiting_for_grammar == 2
    grammar = FakeGrammar([frozenset({6, 7}), frozenset({8})], EOS)
    harness.drain(
        GrammarReady("bad", error=error), GrammarReady("late", grammar), GrammarReady("unknown"), GrammarReady("plain")
    )
    assert harness.finals["bad"].error is error
    assert len(harness.finals["late"].ids) == 2
    assert harness.finals["late"].reason == FinishReason("stop")


def test_a_batch_larger_than_the_running_limit_all_ends() -> None:
    harness = Harness(config(max_running_requests=2))
    for start in (0, 20):
        harness.drain(*[AddReq(f"r{i}", (2 + i % 9, 3, i % 7), greedy(3)) for i in range(start, start + 20)])
    harness.check_idle()
    assert max(len(plan.rows) for plan in harness.plans) == 2


def test_flushing_is_refused_while_something_is_held() -> None:
    harness = Harness()
    harness.step(AddReq("r", LONG, greedy()))
    assert not harness.scheduler.flush_cache()
    harness.drain()
    assert harness.kv.statistics().evictable_pages
    assert harness.scheduler.flush_cache()
    assert not harness.kv.statistics().evictable_pages


def test_statistics_count_what_happened() -> None:
    harness = Harness()
    harness.drain(AddReq("a", LONG, greedy(4)))
    harness.step(AddReq("b", LONG, greedy(4)))
    now = harness.scheduler.statistics()
    assert (now.running, now.waiting, now.computed_tokens, now.cached_tokens) == (1, 0, 31, 29)
    assert now.hit_rate == 29 / 60
    assert now.output_tokens == 5
    assert now.kv.private_pages >= 1


def test_leases_decide_which_prefix_goes_first() -> None:
    """Without a lease first, then the one that is needed last; an ended lease protects no more."""
    harness = Harness(config(chunked_prefill_size=None), num_pages=13, page_size=4)
    for name, lease, next_use in (("a", "soon", 1), ("b", "late", 9), ("c", None, 0)):
        harness.drain(AddReq(name, (ord(name) - 95, *LONG[:11]), greedy(0), lease=lease, next_use=next_use))

    def cached(name: str) -> int:
        return harness.kv.probe("", (ord(name) - 95, *LONG[:11]), 12)

    assert [cached(n) for n in "abc"] == [12, 12, 12]
    harness.drain(AddReq("x", (9,) * 20, greedy(0)))
    assert [cached(n) for n in "abc"] == [12, 12, 4]
    harness.drain(SetNextUse("late", 0), EndLease("unknown"))
    harness.drain(AddReq("y", (10,) * 36, greedy(0)))
    assert cached("b") == 12
    assert harness.kv.statistics().leases == 2
    harness.drain(EndLease("late"), EndLease("soon"))
    assert harness.kv.statistics().leases == 0
    harness.check_idle()


def test_nothing_to_do_is_an_empty_plan() -> None:
    harness = Harness()
    assert not harness.scheduler.has_work
    plan = harness.scheduler.step()
    assert plan.rows == ()
    assert harness.scheduler.commit(StepResult(plan.step, ())) == []


def test_steps_and_commits_alternate() -> None:
    harness = Harness()
    plan = harness.scheduler.step([AddReq("r", (2, 3), greedy())])
    with pytest.raises(AssertionError, match="not committed"):
        harness.scheduler.step()
    with pytest.raises(AssertionError, match="the plan in flight is step 1"):
        harness.scheduler.commit(StepResult(7, ()))
    with pytest.raises(AssertionError, match="0 results for 1 rows"):
        harness.scheduler.commit(StepResult(plan.step, ()))
    harness.scheduler.commit(harness.runner.run(plan))
    with pytest.raises(AssertionError, match="no plan in flight"):
        harness.scheduler.commit(StepResult(2, ()))


def test_equal_messages_make_equal_plans() -> None:
    def plans() -> list[str]:
        harness = Harness(config(chunked_prefill_size=8, batching="mixed"), num_pages=20)
        harness.drain(*[AddReq(f"r{i}", LONG[: 5 + 3 * i], greedy(9, temperature=1.0, seed=i)) for i in range(6)])
        return [repr(plan) for plan in harness.plans]

    assert plans() == plans()


def test_a_request_with_a_row_in_flight_is_not_retracted() -> None:
    harness = Harness()
    plan = harness.scheduler.step([AddReq("r", (2, 3), greedy())])
    assert not harness.scheduler.retract("r")
    harness.scheduler.commit(harness.runner.run(plan))
    assert harness.scheduler.retract("r")
    assert harness.scheduler.state_of("r") is ReqState.WAITING
    assert not harness.scheduler.retract("r")
    assert not harness.scheduler.retract("unknown")


@pytest.mark.parametrize("overlap", [False, True])
def test_tokens_of_a_padded_vocabulary_are_as_any_other_and_have_no_text(overlap: bool) -> None:
    """Half of what the fake model draws is padding; every end is that of the plain reference, also by one as a stop token."""
    padding = range(VOCAB, 2 * VOCAB)
    cfg = config(vocab_size=2 * VOCAB, disable_overlap_schedule=not overlap)
    harness = Harness(cfg, visible=[*VISIBLE, *[b""] * VOCAB])
    stops: list[dict[str, object]] = [
        {},
        {"stop": ("a", "bc")},
        {"stop_regex": ("é|d",)},
        {"stop_token_ids": (VOCAB + 3,)},
    ]
    adds = [
        AddReq(
            f"r{i}",
            (*LONG[: 3 + i], VOCAB + i),
            greedy(20, temperature=1.0, seed=i, **stops[i % 4]),
            logprob=LogprobParams(0),
        )
        for i in range(12)
    ]
    held = AddReq("held", LONG, greedy(), grammar=FakeGrammar([frozenset({6, 7})] * 4, EOS))
    finals = harness.drain(*adds, held)
    harness.check_idle()
    drawn = [token_id for add in adds for token_id in finals[add.rid].ids]
    assert set(drawn) & set(padding)
    assert not set(finals["held"].ids) & set(padding)
    assert {reason.kind for final in finals.values() if (reason := final.reason)} == {"stop", "length"}


def test_a_scheduler_that_lacks_the_text_of_a_token_does_not_start() -> None:
    with pytest.raises(AssertionError, match=f"texts of {VOCAB} tokens, a model of {VOCAB + 1}"):
        Harness(config(vocab_size=VOCAB + 1))
