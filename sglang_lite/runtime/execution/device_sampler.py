"""What a plan wants of the head, worked out on the device: draws with masks and penalties, and log-probabilities.

The host side is arrays: it asks the constraints for their masks, and says what was wrong when the numbers come back. The rules
are those of `sampler.py`. Nothing compiled for the CPU is used. Knows no model, no queue and no KV.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from sglang_lite.errors import ExecutionError
from sglang_lite.runtime.execution.answers import NOTHING, Outcome, Wish
from sglang_lite.runtime.execution.penalties import PenaltyLists, changes_logits, list_penalties
from sglang_lite.runtime.execution.random_numbers import uniform
from sglang_lite.runtime.execution.token_masks import TokenMasks, bad_logits, bad_penalties, dead_end, where_drawn
from sglang_lite.runtime.scheduler.plan import RowPlan, SampleSpec, TargetResult

MIN_TEMPERATURE = 1e-6
"""Below it, sampling is greedy: a float32 distribution that sharp has one token, or ties."""
_MAX_TEMPERATURE = 1e30


class PenaltyTensors(NamedTuple):
    """Penalties of P rows of logits, with lists of their tokens one after the other.

    `rows`: int64 [P]. Row `rows[i]` has the tokens `ids[starts[i]:starts[i + 1]]` (int64, each once), generated `counts` times
    (int32); `starts`: int32 [P + 1]. `repetition`, `frequency`, `presence`: float32 [P]; the first counts for all of the row's
    tokens, the others for those with a count above 0. `bias_starts`, `bias_ids`, `biases`: the same of what is added then.
    """

    rows: torch.Tensor
    starts: torch.Tensor
    ids: torch.Tensor
    counts: torch.Tensor
    repetition: torch.Tensor
    frequency: torch.Tensor
    presence: torch.Tensor
    bias_starts: torch.Tensor
    bias_ids: torch.Tensor
    biases: torch.Tensor


class Scored(NamedTuple):
    """Log-probabilities: `values` float64 [N]; `top_ids` int64 and `top_values` float64 [M, top_num], best first, lower id first
    on ties.
    """

    values: torch.Tensor
    top_ids: torch.Tensor
    top_values: torch.Tensor


class SamplingOps(Protocol):
    """What is computed over rows of logits, float32 [S, V], which are changed in place."""

    def apply_masks(self, logits: torch.Tensor, bitmask: torch.Tensor) -> None:
        """Take out the tokens without a bit, in the first rows: as many as `bitmask`, int32 [M, ceil(V / 32)], has."""
        ...

    def apply_penalties(self, logits: torch.Tensor, penalties: PenaltyTensors) -> None:
        """What `penalties.adjust_logits` does."""
        ...

    def sample(
        self,
        logits: torch.Tensor,
        temperature: torch.Tensor,
        top_k: torch.Tensor,
        top_p: torch.Tensor,
        min_p: torch.Tensor,
        uniform: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        """Write a token of each row to `out`, int64 [S]; a row of numbers that are none may get anything.

        `temperature`, `min_p`: float32 [S]; temperature 0 is greedy. `top_k`: int32 [S], 0 for all. `top_p`, `uniform`:
        float64 [S], the latter being the random numbers.
        """
        ...

    def score(
        self, logits: torch.Tensor, rows: torch.Tensor, ids: torch.Tensor, top_rows: torch.Tensor, top_num: int
    ) -> Scored:
        """Log-probabilities as `logprobs.LogprobRow` has them; `logits` are not changed.

        `rows`, `ids`: int64 [N], the tokens that are asked for. `top_rows`: int64 [M], rows whose `top_num` most likely
        tokens are. Values of rows of numbers that are none may be anything.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Scores:
    """Log-probabilities that one wish wants: `start`: of its first id among the listed ones; `top`: its place among the rows
    that give their most likely tokens, None for none; `drawn`: place among the draws that give their own, None for none.
    """

    start: int
    ids: tuple[int, ...]
    top: int | None
    top_num: int
    drawn: int | None


class WishPiece:
    """The wishes after some tokens of a batch, few enough for their logits to be there at once.

    Attributes:
        wishes: in order of the tokens.
        tokens: int64 [n], the tokens of the batch whose logits are wanted, ascending.
        arrays: what the device needs, by name.
        num_items: int64 numbers that come back.
        last_draws: by row of the plan, which of `draws` gives its last token.

    """

    def __init__(self, wishes: Sequence[Wish], rows: Sequence[RowPlan], masks: TokenMasks, vocab_size: int) -> None:
        self.wishes = wishes
        self._rows = rows
        self._vocab_size = vocab_size
        self.tokens = np.unique(np.array([wish.token for wish in wishes], dtype=np.int64))
        self._errors: dict[int, ExecutionError] = {}
        self._scores: dict[int, _Scores] = {}
        self.arrays: dict[str, NDArray[np.generic]] = {"tokens": self.tokens}
        self._draws = self._find_draws(masks)
        self._list_scores()
        self.last_draws = {
            wishes[i].row: d
            for d, i in enumerate(self._draws)
            if wishes[i].guess is None and not rows[wishes[i].row].drafts
        }
        self._may_write = not self._scores and self._is_one_draw_a_row()
        self._is_plain = (
            not self._scores and not self._errors and all(map(_is_alone, wishes, [rows[w.row] for w in wishes]))
        )
        self._sizes = self._find_sizes()
        self.num_items = sum(self._sizes.values())

    def compute(
        self, logits: torch.Tensor, tensors: Mapping[str, torch.Tensor], ops: SamplingOps
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """On the device: the drawn tokens, int64 [draws], and the numbers that come back, int64.

        Args:
            logits: float32 [n, V], after the tokens `tokens`; changed where one draw a row is all that is wanted of them.
            tensors: `arrays` on the device.
            ops: what draws.

        """
        found: dict[str, torch.Tensor] = {"is_finite": torch.isfinite(logits).all(1).long()}
        drawn = torch.empty(len(self._draws), dtype=torch.int64, device=logits.device)
        if len(self._draws):
            work = logits if self._may_write else logits.index_select(0, tensors["draw_rows"])
            if "penalty_rows" in tensors:
                fields = {name: tensors[f"penalty_{name}"] for name in PenaltyTensors._fields}
                ops.apply_penalties(work, PenaltyTensors(**fields))
            if "bitmask" in tensors:
                ops.apply_masks(work, tensors["bitmask"])
            t = tensors
            found["has_peak"] = torch.isfinite(work.amax(1)).long()
            ops.sample(work, t["temperature"], t["top_k"], t["top_p"], t["min_p"], t["uniform"], drawn)
            drawn = torch.where(tensors["given"] >= 0, tensors["given"], drawn)
            found["drawn"] = drawn
        if self._scores:
            found |= self._compute_scores(logits, drawn, tensors, ops)
        assert {name: value.numel() for name, value in found.items()} == self._sizes, (
            f"{self._sizes} numbers are awaited"
        )
        return drawn, [_as_int64(found[name]) for name in self._sizes]

    def plain_tokens(self, numbers: NDArray[np.int64]) -> list[int] | None:
        """The tokens of the wishes, in order, where each is the only one of its row, is drawn alone, and nothing went wrong; else
        None, and `outcomes` says what became of them.
        """
        if not self._is_plain or not numbers[: len(self.tokens) + len(self._draws)].all():
            return None
        drawn = numbers[len(self.tokens) + len(self._draws) :]
        tokens = np.empty_like(drawn)
        tokens[self._draws] = drawn
        return tokens.tolist()

    def outcomes(self, numbers: NDArray[np.int64]) -> list[Outcome]:
        """The answers to the wishes, in order, from what came back."""
        found: dict[str, NDArray[np.int64]] = {}
        start = 0
        for name, size in self._sizes.items():
            found[name] = numbers[start : start + size]
            start += size
        draws = {i: d for d, i in enumerate(self._draws)}
        return [self._outcome(i, draws.get(i), found) for i in range(len(self.wishes))]

    def _outcome(self, i: int, draw: int | None, found: Mapping[str, NDArray[np.int64]]) -> Outcome:
        wish = self.wishes[i]
        row = self._rows[wish.row]
        is_finite = found["is_finite"][np.searchsorted(self.tokens, wish.token)]
        if wish.target is not None:
            where = _where_scored(row, wish)
            if not is_finite:
                return bad_logits(where)
            return self._errors.get(i) or TargetResult(*self._about(i, found)[1:])
        spec = self._spec(i)
        assert draw is not None, f"wish {i} of row {row.rid!r} was not drawn"
        if not is_finite:
            return bad_logits(where_drawn(spec, row.rid) if spec.given is None else _where_reported(spec, row.rid))
        if i in self._errors:
            return self._errors[i]
        if spec.given is None and not found["has_peak"][draw]:
            return bad_penalties(where_drawn(spec, row.rid))
        token = int(found["drawn"][draw])
        if spec.logprob is None:
            return token, NOTHING
        logprob, asked, top = self._about(i, found)
        return token, (logprob, top, tuple(zip(spec.logprob.token_ids, asked, strict=True)))

    def _about(
        self, i: int, found: Mapping[str, NDArray[np.int64]]
    ) -> tuple[float | None, tuple[float, ...], tuple[tuple[int, float], ...]]:
        """(log-probability of the drawn token, those of the listed ids, the most likely tokens)."""
        scores = self._scores[i]
        values = found["scores"].view(np.float64)
        listed = values[scores.start : scores.start + len(scores.ids)]
        top: tuple[tuple[int, float], ...] = ()
        if scores.top is not None:
            width = len(found["top_ids"]) // len(self.arrays["top_rows"])
            part = slice(scores.top * width, scores.top * width + min(scores.top_num, width))
            best = found["top_values"].view(np.float64)[part]
            top = tuple(zip(found["top_ids"][part].tolist(), best.tolist(), strict=True))
        own = None if scores.drawn is None else float(values[len(self.arrays["score_ids"]) + scores.drawn])
        return own, tuple(listed.tolist()), top

    def _is_one_draw_a_row(self) -> bool:
        rows = self.arrays.get("draw_rows")
        return rows is not None and np.array_equal(rows, np.arange(len(self.tokens)))

    def _spec(self, i: int) -> SampleSpec:
        spec = self.wishes[i].spec
        assert spec is not None, f"row {self._rows[self.wishes[i].row].rid!r} wants no token"
        return spec

    def _find_draws(self, masks: TokenMasks) -> list[int]:
        """The wishes that draw, those with a mask first, and their arrays."""
        masked: list[int] = []
        plain: list[int] = []
        drawing = [i for i, wish in enumerate(self.wishes) if wish.target is None]
        bitmask = (
            np.zeros((len(drawing), masks.num_words), dtype=np.int32) if any(map(self._may_mask, drawing)) else None
        )
        for i in drawing:
            if bitmask is not None and self._fill_mask(i, masks, bitmask, len(masked)):
                masked.append(i)
            else:
                plain.append(i)
        draws = masked + plain
        if not draws:
            return draws
        if masked and bitmask is not None:
            self.arrays["bitmask"] = bitmask[: len(masked)]
        specs = [self._spec(i) for i in draws]
        self.arrays["draw_rows"] = np.searchsorted(self.tokens, [self.wishes[i].token for i in draws]).astype(np.int64)
        self.arrays |= _draw_arrays(specs, self._vocab_size)
        self._list_penalties(draws)
        return draws

    def _may_mask(self, i: int) -> bool:
        spec = self._spec(i)
        return spec.given is None and (spec.grammar is not None or len(spec.output_ids) < spec.params.min_new_tokens)

    def _fill_mask(self, i: int, masks: TokenMasks, bitmask: NDArray[np.int32], index: int) -> bool:
        """Write the wish's mask, if it has one in which a token may come."""
        if not self._may_mask(i):
            return False
        spec = self._spec(i)
        where = where_drawn(spec, self._rows[self.wishes[i].row].rid)
        try:
            if not masks.fill(spec, bitmask, index, where):
                return False
        except ExecutionError as error:
            self._errors[i] = error
            return False
        if masks.has_any(bitmask[index]):
            return True
        self._errors[i] = dead_end(spec.params, where)
        return False

    def _list_penalties(self, draws: Sequence[int]) -> None:
        rows: list[int] = []
        lists: list[PenaltyLists] = []
        specs: list[SampleSpec] = []
        for d, i in enumerate(draws):
            spec = self._spec(i)
            if spec.given is not None or not changes_logits(spec.params):
                continue
            try:
                lists.append(list_penalties(spec, self._vocab_size))
            except ExecutionError as error:
                where = where_drawn(spec, self._rows[self.wishes[i].row].rid)
                self._errors[i] = ExecutionError(f"{where}: {error}")
                continue
            rows.append(d)
            specs.append(spec)
        if rows:
            self.arrays |= {f"penalty_{name}": array for name, array in _penalty_arrays(rows, specs, lists).items()}

    def _list_scores(self) -> None:
        """What is to be known of the distributions themselves, and its arrays."""
        score_rows: list[int] = []
        score_ids: list[int] = []
        top_rows: list[int] = []
        drawn: list[int] = []
        draws = {i: d for d, i in enumerate(self._draws)}
        for i, wish in enumerate(self.wishes):
            asked = self._asked(i)
            if asked is None:
                continue
            ids, top_num = asked
            row = int(np.searchsorted(self.tokens, wish.token))
            own = len(drawn) if wish.target is None else None
            if own is not None:
                drawn.append(draws[i])
            self._scores[i] = _Scores(len(score_ids), ids, len(top_rows) if top_num else None, top_num, own)
            score_rows += [row] * len(ids)
            score_ids += ids
            top_rows += [row] * bool(top_num)
        if self._scores:
            self.arrays |= {
                "score_rows": np.array(score_rows, dtype=np.int64),
                "score_ids": np.array(score_ids, dtype=np.int64),
                "top_rows": np.array(top_rows, dtype=np.int64),
                "scored_draws": np.array(drawn, dtype=np.int64),
            }

    def _asked(self, i: int) -> tuple[tuple[int, ...], int] | None:
        """(ids, number of the most likely tokens) whose log-probabilities a wish wants; None: none, or not to be had."""
        wish = self.wishes[i]
        row = self._rows[wish.row]
        if wish.target is not None:
            ids, top_num, where = wish.target.token_ids, wish.target.top_num, _where_scored(row, wish)
        else:
            spec = self._spec(i)
            if spec.logprob is None or i in self._errors:
                return None
            ids, top_num, where = spec.logprob.token_ids, spec.logprob.top_num, _where_reported(spec, row.rid)
        bad = next((token for token in ids if not 0 <= token < self._vocab_size), None)
        if bad is not None:
            self._errors[i] = ExecutionError(
                f"{where}: asked for token {bad}, expected ids from 0 to {self._vocab_size - 1}"
            )
            return None
        return ids, max(top_num, 0)

    def _find_sizes(self) -> dict[str, int]:
        """How many numbers of each kind come back."""
        sizes = {"is_finite": len(self.tokens)}
        if self._draws:
            sizes |= {"has_peak": len(self._draws), "drawn": len(self._draws)}
        if self._scores:
            num_top = len(self.arrays["top_rows"]) * self._top_width
            sizes |= {
                "scores": len(self.arrays["score_ids"]) + len(self.arrays["scored_draws"]),
                "top_ids": num_top,
                "top_values": num_top,
            }
        return sizes

    @property
    def _top_width(self) -> int:
        return min(max(scores.top_num for scores in self._scores.values()), self._vocab_size)

    def _compute_scores(
        self, logits: torch.Tensor, drawn: torch.Tensor, tensors: Mapping[str, torch.Tensor], ops: SamplingOps
    ) -> dict[str, torch.Tensor]:
        """Log-probabilities of the raw logits: of the listed ids, then of the drawn tokens, and the most likely ones."""
        rows, ids, own = tensors["score_rows"], tensors["score_ids"], tensors["scored_draws"]
        if len(own):
            rows = torch.cat([rows, tensors["draw_rows"].index_select(0, own)])
            # A failed draw is a number below 0; its row is an error and nobody reads its score.
            ids = torch.cat([ids, drawn.index_select(0, own).clamp(0, self._vocab_size - 1)])
        found = ops.score(logits, rows, ids, tensors["top_rows"], self._top_width)
        return {"scores": found.values, "top_ids": found.top_ids, "top_values": found.top_values}


def _is_alone(wish: Wish, row: RowPlan) -> bool:
    """The row wants one drawn token and nothing else."""
    return wish.spec is not None and wish.spec.given is None and not row.drafts and not row.targets


def _draw_arrays(specs: Sequence[SampleSpec], vocab_size: int) -> dict[str, NDArray[np.generic]]:
    temperatures = [
        0.0
        if s.params.is_greedy or s.params.temperature < MIN_TEMPERATURE
        else min(s.params.temperature, _MAX_TEMPERATURE)
        for s in specs
    ]
    return {
        "temperature": np.array(temperatures, dtype=np.float32),
        "top_k": np.array([s.params.top_k if 0 < s.params.top_k < vocab_size else 0 for s in specs], dtype=np.int32),
        "top_p": np.array([s.params.top_p for s in specs], dtype=np.float64),
        "min_p": np.array([s.params.min_p for s in specs], dtype=np.float32),
        "uniform": np.array(
            [
                uniform(s.seed, s.position) if heat and s.given is None else 0.0
                for s, heat in zip(specs, temperatures, strict=True)
            ],
            dtype=np.float64,
        ),
        "given": np.array([-1 if s.given is None else s.given for s in specs], dtype=np.int64),
    }


def _penalty_arrays(
    rows: Sequence[int], specs: Sequence[SampleSpec], lists: Sequence[PenaltyLists]
) -> dict[str, NDArray[np.generic]]:
    """The fields of `PenaltyTensors`."""
    params = [spec.params for spec in specs]
    return {
        "rows": np.array(rows, dtype=np.int64),
        "starts": _starts([len(found.ids) for found in lists]),
        "ids": np.concatenate([found.ids for found in lists]),
        "counts": np.concatenate([found.counts for found in lists]),
        "repetition": np.array([p.repetition_penalty for p in params], dtype=np.float32),
        "frequency": np.array([p.frequency_penalty for p in params], dtype=np.float32),
        "presence": np.array([p.presence_penalty for p in params], dtype=np.float32),
        "bias_starts": _starts([len(found.bias_ids) for found in lists]),
        "bias_ids": np.concatenate([found.bias_ids for found in lists]),
        "biases": np.concatenate([found.biases for found in lists]),
    }


def _starts(lens: Sequence[int]) -> NDArray[np.int32]:
    return np.concatenate([[0], np.cumsum(lens)]).astype(np.int32)


def _as_int64(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.contiguous().view(-1)
    return flat if flat.dtype == torch.int64 else flat.view(torch.int64)


def _where_scored(row: RowPlan, wish: Wish) -> str:
    assert wish.target is not None, f"row {row.rid!r} wants no score"
    return f"scoring token {row.prefix_len + wish.target.query + 1} of request {row.rid}"


def _where_reported(spec: SampleSpec, rid: str) -> str:
    return f"reporting log-probabilities at token {spec.position} of request {rid}"
