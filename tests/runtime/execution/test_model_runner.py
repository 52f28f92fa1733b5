"""The runner on a tiny random Llama: equal to whole sequences computed without paging, whatever the plan looks like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from sglang_lite.errors import DeadEndError, ExecutionError
from sglang_lite.kernels.cpu.threads import KernelThreads
from sglang_lite.request_tree import LogprobParams
from sglang_lite.runtime.attention.base import AttentionBackend
from sglang_lite.runtime.attention.cpu import CpuAttention
from sglang_lite.runtime.attention.kv_pool import KvPool
from sglang_lite.runtime.attention.torch_ref import TorchAttention
from sglang_lite.runtime.execution.device_runner import DeviceRunner
from sglang_lite.runtime.execution.model_runner import ModelRunner
from sglang_lite.runtime.model.llama import LlamaForCausalLM
from sglang_lite.runtime.scheduler.plan import LogprobTarget, PageCopy, RowPlan, RowResult
from tests.runtime.execution.support import TINY, AllowedTokens, plain_logits, plan_of, row, spec, tiny_llama

PAGE_SIZES = [1, 4, 16]
TOLERANCE = 1e-4
IDS = np.random.default_rng(11).integers(0, TINY.vocab_size, 200).tolist()


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return tiny_llama()


def _cpu_attention(pool: KvPool) -> AttentionBackend:
    return CpuAttention(pool, TINY.num_heads, KernelThreads(1))


@pytest.fixture(
    params=[(TorchAttention, ModelRunner), (_cpu_attention, ModelRunner), (TorchAttention, DeviceRunner)],
    ids=["torch_ref", "cpu", "device"],
    autouse=True,
)
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here runs on both attention backends, and on the runner for devices."""
    make_attention, make_runner = request.param
    monkeypatch.setattr(Bench, "make_attention", staticmethod(make_attention))
    monkeypatch.setattr(Bench, "make_runner", staticmethod(make_runner))


class Bench:
    """A runner with its pool, and pages given out in a scattered order."""

    make_attention: Callable[[KvPool], AttentionBackend] = staticmethod(TorchAttention)
    make_runner: Callable[..., ModelRunner | DeviceRunner] = staticmethod(ModelRunner)

    def __init__(self, model: LlamaForCausalLM, page_size: int, **runner_args: Any) -> None:
        self.page_size = page_size
        num_pages = 1 + -(-600 // page_size)
        pool = self.pool = KvPool(TINY.num_layers, num_pages, TINY.num_kv_heads, TINY.head_dim, page_size)
        pool.k[:], pool.v[:] = 1e3, 1e3  # whoever reads what was not written gets it badly wrong
        values: dict[str, Any] = {"vocab_size": TINY.vocab_size, **runner_args}
        self.runner = self.make_runner(model, self.make_attention(pool), pool, **values)
        self._free = np.random.default_rng(2).permutation(np.arange(1, num_pages)).tolist()

    def pages(self, num_tokens: int) -> list[int]:
        return [self._free.pop() for _ in range(-(-num_tokens // self.page_size))]

    def run(self, *rows: RowPlan, copies: Sequence[PageCopy] = ()) -> tuple[RowResult, ...]:
        return self.runner.run(plan_of(*rows, copies=copies)).rows


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return torch.from_numpy(logits).double().log_softmax(dim=-1).numpy()


def all_targets(ids: Sequence[int], first: int = 0, top_num: int = 0) -> list[LogprobTarget]:
    """One target after every token of a row whose tokens are `ids[first:]`: the token that follows, and token 3."""
    return [LogprobTarget(i - first, (ids[i + 1], 3), top_num) for i in range(first, len(ids) - 1)]


def check_scores(results: Sequence[Any], model: LlamaForCausalLM, ids: Sequence[int], first: int = 0) -> None:
    expected = log_softmax(plain_logits(model, ids))
    assert len(results) == len(ids) - 1 - first
    for i, result in enumerate(results, start=first):
        assert result.logprobs == pytest.approx((expected[i, ids[i + 1]], expected[i, 3]), abs=TOLERANCE)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_ragged_batch_equals_each_sequence_alone(model: LlamaForCausalLM, page_size: int) -> None:
    bench = Bench(model, page_size)
    sequences = [IDS[:1], IDS[5:38], IDS[40:56], IDS[60:77]]
    results = bench.run(
        *(
            row(f"r{i}", ids, bench.pages(len(ids)), targets=all_targets(ids), sample=spec())
            for i, ids in enumerate(sequences)
        )
    )
    for ids, result in zip(sequences, results, strict=True):
        check_scores(result.targets, model, ids)
        assert result.token_id == plain_logits(model, ids)[-1].argmax()


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("chunks", [[1] * 9, [4, 1, 7, 16, 3], [31, 2]])
def test_a_sequence_in_pieces_beside_a_decoding_row_equals_it_at_once(
    model: LlamaForCausalLM, page_size: int, chunks: list[int]
) -> None:
    bench = Bench(model, page_size)
    ids, other = IDS[: sum(chunks) + 1], IDS[100:103]
    pages, other_pages = bench.pages(len(ids)), bench.pages(60)
    bench.run(row("other", other, other_pages))
    done, scores = 0, []
    for chunk in chunks:
        piece = row(
            "r", ids[done : done + chunk], pages, prefix_len=done, targets=all_targets(ids[: done + chunk + 1], done)
        )
        decoding = row("other", [7], other_pages, prefix_len=len(other), sample=spec())
        first, second = bench.run(piece, decoding)
        other = [*other, 7]
        scores += first.targets
        done += chunk
        assert first.token_id is None
        assert second.token_id == plain_logits(model, other)[-1].argmax()
    check_scores(scores, model, ids)


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_rows_that_read_what_an_earlier_row_of_the_step_writes(model: LlamaForCausalLM, page_size: int) -> None:
    """The edges of a tree of choices: a trunk, and branches whose first pages are the trunk's."""
    bench = Bench(model, page_size)
    trunk, tails = IDS[:32], [IDS[50:53], IDS[60:80], IDS[90:91]]
    trunk_pages = bench.pages(len(trunk))
    rows = [row("trunk", trunk, trunk_pages, targets=all_targets(trunk))]
    for i, tail in enumerate(tails):
        pages = [*trunk_pages, *bench.pages(len(tail))]
        whole = [*trunk, *tail]
        rows.append(row(f"t{i}", tail, pages, prefix_len=32, targets=all_targets(whole, 32), sample=spec()))
    results = bench.run(*rows)
    check_scores(results[0].targets, model, trunk)
    for tail, result in zip(tails, results[1:], strict=True):
        check_scores(result.targets, model, [*trunk, *tail], first=32)
        assert result.token_id == plain_logits(model, [*trunk, *tail])[-1].argmax()


@pytest.mark.parametrize("page_size", [4, 16])
def test_the_head_of_a_page_is_copied_before_the_forward(model: LlamaForCausalLM, page_size: int) -> None:
    """One page is read by a copy and overwritten by another, and its own row goes on in the same step."""
    bench = Bench(model, page_size)
    ids = IDS[: page_size + 3]
    old = bench.pages(len(ids) + 5)
    bench.run(row("old", ids, old))
    fresh, second = bench.pages(page_size)[0], bench.pages(page_size)[0]
    branch, longer = [*ids[: page_size + 2], *IDS[70:72]], [*ids, 5]
    results = bench.run(
        row("branch", branch[-2:], [old[0], fresh], prefix_len=page_size + 2, sample=spec()),
        row("old", [5], old, prefix_len=len(ids), sample=spec()),
        copies=[PageCopy(old[1], fresh, 2), PageCopy(fresh, second, 1)],
    )
    for whole, result in zip((branch, longer), results, strict=True):
        assert result.token_id == plain_logits(model, whole)[-1].argmax()


def test_a_plan_of_copies_only_is_carried_out(model: LlamaForCausalLM) -> None:
    bench = Bench(model, 4)
    pages, target = bench.pages(4), bench.pages(4)
    bench.run(row("r", IDS[:4], pages))
    result = bench.runner.run(plan_of(copies=[PageCopy(pages[0], target[0], 4)], step=9))
    assert (result.step, result.rows) == (9, ())
    (row_result,) = bench.run(row("r", IDS[4:5], [*target, *bench.pages(1)], prefix_len=4, sample=spec()))
    assert row_result.token_id == plain_logits(model, IDS[:5])[-1].argmax()


def test_the_head_runs_once_for_each_wanted_token_and_for_no_other(model: LlamaForCausalLM) -> None:
    bench = Bench(model, 4)
    targets = [LogprobTarget(3, (1,)), LogprobTarget(0, (2,)), LogprobTarget(3, (4, 5))]
    first, second, third = bench.run(
        row("a", IDS[:4], bench.pages(4), targets=targets, sample=spec()),
        row("b", IDS[:9], bench.pages(9)),
        row("c", IDS[:5], bench.pages(5), sample=spec(temperature=1.0)),
    )
    assert bench.runner.counters.head_rows == 3
    assert (bench.runner.counters.steps, bench.runner.counters.tokens, bench.runner.counters.sampled) == (1, 18, 2)
    assert [len(target.logprobs) for target in first.targets] == [1, 1, 2]
    assert second == RowResult()
    assert third.token_id is not None


def test_targets_keep_their_order_and_their_top_tokens(model: LlamaForCausalLM) -> None:
    bench = Bench(model, 4)
    ids = IDS[:6]
    targets = [LogprobTarget(query, (query,), top_num=query) for query in (4, 0, 2, 5)]
    (result,) = bench.run(row("a", ids, bench.pages(6), targets=targets))
    expected = log_softmax(plain_logits(model, ids))
    for target, answer in zip(targets, result.targets, strict=True):
        line = expected[target.query]
        assert answer.logprobs == pytest.approx([line[target.query]], abs=TOLERANCE)
        assert [token for token, _ in answer.top] == np.argsort(-line)[: target.query].tolist()
        assert [value for _, value in answer.top] == pytest.approx(np.sort(line)[::-1][: target.query], abs=TOLERANCE)


@pytest.mark.parametrize("head_rows", [1, 7, 256])
def test_logits_come_in_pieces_of_bounded_size(model: LlamaForCausalLM, head_rows: int) -> None:
    """A prompt of thousands of scored tokens must not ask for thousands of rows of logits at once."""
    seen: list[int] = []

    class Counting:
        forward = staticmethod(model.forward)

        def logits(self, hidden: torch.Tensor) -> torch.Tensor:
            seen.append(len(hidden))
            return model.logits(hidden)

    bench = Bench(Counting(), 16, head_rows=head_rows)  # pyright: ignore[reportArgumentType]
    ids = IDS[:120]
    (result,) = bench.run(row("r", ids, bench.pages(120), targets=all_targets(ids), sample=spec()))
    check_scores(result.targets, model, ids)
    assert max(seen) <= head_rows
    assert sum(seen) == 120


def test_output_log_probabilities_are_of_the_raw_logits(model: LlamaForCausalLM) -> None:
    """Temperature, penalties and a grammar change what is drawn, and not what is reported."""
    bench = Bench(model, 4)
    ids = IDS[:8]
    line = log_softmax(plain_logits(model, ids))[-1]
    rare = int(line.argmin())
    asked = LogprobParams(top_num=3, token_ids=(2, 90))
    (result,) = bench.run(
        row(
            "r",
            ids,
            bench.pages(8),
            sample=spec(
                temperature=0.3, presence_penalty=1.0, output_ids=[2], grammar=AllowedTokens([rare]), logprob=asked
            ),
        )
    )
    assert result.token_id == rare
    assert result.logprob == pytest.approx(line[rare], abs=TOLERANCE)
    assert [token for token, _ in result.top] == np.argsort(-line)[:3].tolist()
    assert [token for token, _ in result.asked] == [2, 90]
    assert [value for _, value in result.asked] == pytest.approx(line[[2, 90]], abs=TOLERANCE)


def guessing(model: LlamaForCausalLM, num_right: int, num_wrong: int, **changes: Any) -> RowPlan:
    """A row of seven known tokens, then the greedy ones, then others, each with its spec."""
    ids = list(IDS[:7])
    for _ in range(num_right):
        ids.append(int(plain_logits(model, ids)[-1].argmax()))
    for _ in range(num_wrong):
        ids.append(int(plain_logits(model, ids)[-1].argmin()))
    specs = tuple(spec(position=i, prompt_ids=IDS[:7], output_ids=ids[7:i], **changes) for i in range(7, len(ids)))
    last = spec(position=len(ids), prompt_ids=IDS[:7], output_ids=ids[7:], **changes)
    return row("r", ids, [], sample=last)._replace(drafts=specs)


@pytest.mark.parametrize(("num_right", "num_wrong"), [(3, 0), (2, 2), (0, 3), (0, 0)])
def test_guesses_stand_up_to_the_first_that_is_not_drawn(
    model: LlamaForCausalLM, num_right: int, num_wrong: int
) -> None:
    """Each with the log-probabilities of its own place; the token after them is what is drawn there."""
    bench = Bench(model, 4)
    asked = LogprobParams(top_num=1, token_ids=(5,))
    plan = guessing(model, num_right, num_wrong, logprob=asked)
    plan = plan._replace(pages=np.array(bench.pages(plan.seq_len), np.int32))
    (result,) = bench.run(plan)
    lines = log_softmax(plain_logits(model, plan.input_ids))
    assert [kept.token_id for kept in result.kept] == list(plan.input_ids[7 : 7 + num_right])
    for place, got in enumerate([*result.kept, result], 6):
        assert got.token_id == lines[place].argmax()
        assert got.logprob == pytest.approx(lines[place].max(), abs=TOLERANCE)
        assert [value for _, value in got.asked] == pytest.approx([lines[place][5]], abs=TOLERANCE)
    assert bench.runner.counters.sampled == num_right + 1


def test_given_tokens_stand_whatever_the_model_says_and_cost_no_head(model: LlamaForCausalLM) -> None:
    bench = Bench(model, 4)
    plan = guessing(model, 0, 3)
    plan = plan._replace(
        pages=np.array(bench.pages(plan.seq_len), np.int32),
        drafts=tuple(one._replace(given=token) for one, token in zip(plan.drafts, plan.input_ids[7:], strict=True)),
    )
    (result,) = bench.run(plan)
    assert [kept.token_id for kept in result.kept] == list(plan.input_ids[7:])
    assert result.token_id == plain_logits(model, plan.input_ids)[-1].argmax()
    assert bench.runner.counters.head_rows == 1


def test_an_error_behind_guesses_that_stand_comes_with_them(model: LlamaForCausalLM) -> None:
    bench = Bench(model, 4)
    plan = guessing(model, 2, 0)
    plan = plan._replace(
        pages=np.array(bench.pages(plan.seq_len), np.int32), sample=spec(position=9, grammar=AllowedTokens([]))
    )
    (result,) = bench.run(plan)
    assert isinstance(result.error, DeadEndError)
    assert [kept.token_id for kept in result.kept] == list(plan.input_ids[7:])


def test_the_top_entry_of_a_greedy_token_is_that_token(model: LlamaForCausalLM) -> None:
    bench = Bench(model, 4)
    (result,) = bench.run(row("r", IDS[:8], bench.pages(8), sample=spec(logprob=LogprobParams(top_num=1))))
    assert result.top == ((result.token_id, result.logprob),)


def test_a_row_without_logprob_parameters_reports_none(model: LlamaForCausalLM) -> None:
    bench = Bench(model, 4)
    (result,) = bench.run(row("r", IDS[:8], bench.pages(8), sample=spec()))
    assert (result.logprob, result.top, result.asked) == (None, (), ())


def rows_of_all_kinds(bench: Bench) -> list[RowPlan]:
    asked = LogprobParams(top_num=2)
    return [
        row("plain", IDS[:9], bench.pages(9), sample=spec(logprob=asked)),
        row("seeded", IDS[9:20], bench.pages(11), sample=spec(temperature=0.8, seed=42, position=11)),
        row("scored", IDS[20:33], bench.pages(13), targets=all_targets(IDS[20:33])),
        row("masked", IDS[33:40], bench.pages(7), sample=spec(grammar=AllowedTokens([1, 5, 8]))),
    ]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"ids": [3, TINY.vocab_size, 4]}, "request bad: got token id 97, expected ids from 0 to 96"),
        ({"ids": [3, -1, 4]}, "request bad: got token id -1"),
        ({"sample": spec(grammar=AllowedTokens([]))}, "request bad: no token of the vocabulary continues"),
        ({"sample": spec(logit_bias=((500, 1.0),))}, "request bad: has a token of logit_bias 500"),
        ({"sample": spec(logprob=LogprobParams(token_ids=(500,)))}, "request bad: asked for token 500"),
        (
            {"targets": [LogprobTarget(0, (500,)), LogprobTarget(1, (1,))]},
            "token 1 of request bad: asked for token 500",
        ),
    ],
)
def test_one_bad_row_gets_an_error_and_the_others_their_results(
    model: LlamaForCausalLM, fault: dict[str, Any], message: str
) -> None:
    expected = Bench(model, 4)
    good = expected.run(*rows_of_all_kinds(expected))
    bench = Bench(model, 4)
    others = rows_of_all_kinds(bench)
    values = {"ids": IDS[:3], "pages": bench.pages(3), "sample": spec(), **fault}
    results = bench.run(*others[:2], row("bad", **values), *others[2:])
    bad = results[2]
    assert isinstance(bad.error, ExecutionError)
    assert message in str(bad.error)
    assert (bad.token_id, bad.targets) == (None, ())
    for result, alone in zip([*results[:2], *results[3:]], good, strict=True):
        assert result.error is None
        assert result.token_id == alone.token_id
        assert len(result.targets) == len(alone.targets)
    assert isinstance(bad.error, DeadEndError) == ("no token" in message)


def test_damaged_kv_of_one_row_fails_that_row_only(model: LlamaForCausalLM) -> None:
    """NaN in a page reaches the logits of the row that reads it."""
    bench = Bench(model, 4)
    pages = bench.pages(6)
    bench.run(row("bad", IDS[:5], pages))
    bench.pool.v[:, pages[0]] = float("nan")
    others = rows_of_all_kinds(bench)
    bad, *rest = bench.run(
        row("bad", [1], pages, prefix_len=5, sample=spec(), targets=[LogprobTarget(0, (1,))]), *others
    )
    assert "request bad: the model gave NaN" in str(bad.error)
    assert all(result.error is None for result in rest)


def test_a_seeded_row_draws_the_same_alone_in_company_and_in_pieces(model: LlamaForCausalLM) -> None:
    """The reported case: one request with a seed beside others with and without, cached or not."""
    ids = IDS[:20]

    def continue_from(bench: Bench, cached: int, mates: int) -> list[int]:
        pages, drawn = bench.pages(40), []
        if cached:
            bench.run(row("r", ids[:cached], pages))
        new, done = ids[cached:], cached
        for step in range(16):
            sample = spec(temperature=0.8, seed=42, position=20 + step)
            rows = [
                row(f"m{i}", IDS[i : i + 9], bench.pages(9), sample=spec(temperature=1.0, seed=i)) for i in range(mates)
            ]
            results = bench.run(
                *rows[: mates // 2], row("r", new, pages, prefix_len=done, sample=sample), *rows[mates // 2 :]
            )
            token = results[mates // 2].token_id
            assert token is not None
            done, new = done + len(new), [token]
            drawn.append(token)
        return drawn

    alone = continue_from(Bench(model, 4), 0, 0)
    assert continue_from(Bench(model, 4), 0, 1) == alone
    assert continue_from(Bench(model, 4), 13, 0) == alone
    assert continue_from(Bench(model, 1), 0, 2) == alone


def test_masks_touch_only_their_own_rows_whatever_the_order(model: LlamaForCausalLM) -> None:
    """Plain rows and rows under two constraints, entering and leaving, give what each gives alone."""
    kinds: dict[str, list[int] | None] = {"plain": None, "a": [4, 9], "b": [70, 71, 72], "plain2": None, "c": [9]}

    def results_of(names: Sequence[str]) -> dict[str, int | None]:
        bench = Bench(model, 4)
        rows = []
        for name in names:
            allowed = kinds[name]
            grammar = None if allowed is None else AllowedTokens(allowed)
            rows.append(row(name, IDS[: 5 + len(name)], bench.pages(12), sample=spec(grammar=grammar)))
        return {name: result.token_id for name, result in zip(names, bench.run(*rows), strict=True)}

    alone = {name: results_of([name])[name] for name in kinds}
    for names in (["plain", "a", "b"], ["c", "b", "a", "plain2", "plain"], ["b", "plain", "c"], list(kinds)):
        assert results_of(names) == {name: alone[name] for name in names}
