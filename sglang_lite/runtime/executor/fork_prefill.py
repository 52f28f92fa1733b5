"""Computes what the children of a fork share once, before any of them runs; it knows one program and no scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sglang_lite.request_tree import GenOp, SamplingParams, SelectOp
from sglang_lite.runtime.executor.branch import Branch
from sglang_lite.runtime.executor.leases import BranchLeases
from sglang_lite.runtime.executor.ports import RequestPort
from sglang_lite.runtime.scheduler.messages import AbortReq, AddReq, ReqOutput
from sglang_lite.runtime.text.tokenizer import Tokenizer

MIN_SHARED_TOKENS = 8
"""Fewer are not worth a step of their own; behind a gen it is one, the last of what it gave."""

_REQUESTS = (GenOp, SelectOp)
_NOTHING = SamplingParams(max_new_tokens=0, temperature=0.0, seed=0)


class ForkPrefills:
    """The prefills of one program that are under way.

    A row in flight shares whole pages only once they are computed, and its last page not before it ends. So children that
    start side by side would each compute the end of what they share; a request that ends where they part gives them all
    of it: what was before the fork, and how their own texts begin alike.
    """

    def __init__(
        self,
        number: int,
        port: RequestPort,
        tokenizer: Tokenizer,
        leases: BranchLeases,
        go_on: Callable[[Sequence[Branch]], None],
    ) -> None:
        self._number = number
        self._port = port
        self._tokenizer = tokenizer
        self._leases = leases
        self._go_on = go_on
        self._waiting: dict[str, list[Branch]] = {}

    def begin(self, branch: Branch, children: Sequence[Branch]) -> bool:
        """Start the prefill of what `children`, just born, share; False: there is no use in one.

        The ops of the children that need no request have been executed. They wait until it has ended.
        """
        runners = [child for child in children if child.failed is None and _will_run(child)]
        if len(runners) < 2:
            return False
        ids = self._shared(branch, runners)
        if len(ids) - branch.computed_len < MIN_SHARED_TOKENS:
            return False
        lease, next_use = self._leases.needed(branch)
        req = AddReq(
            self._port.new_rid(),
            ids,
            _NOTHING,
            is_continuing=branch.has_run,
            lease=lease,
            next_use=next_use,
            place=(self._number, *branch.path),
        )
        for child in children:
            child.is_born = False
            child.has_run = True
            child.computed_len = len(ids)
        branch.computed_len = min(len(branch.ids), len(ids))
        self._waiting[req.rid] = list(children)
        self._port.submit(req, self._on_output)
        return True

    def _shared(self, branch: Branch, runners: Sequence[Branch]) -> tuple[int, ...]:
        """The ids with which all `runners` begin: `branch`'s, and more where a request comes next on every one.

        The last token of a prompt is left out: each request computes it, since its distribution is wanted.
        """
        if not all(child.running is None and isinstance(child.queue[0], _REQUESTS) for child in runners):
            return tuple(branch.ids)
        prompts = [child.peek(self._tokenizer) for child in runners]
        low, high = min(prompts), max(prompts)  # what these two share, all between them do
        most = min(map(len, prompts)) - 1
        own = len(branch.ids)  # each has these
        others = zip(low[own:], high[own:], strict=False)
        same = next((n for n, (a, b) in enumerate(others, own) if a != b), len(low))
        return low[: min(same, most)]

    def _on_output(self, out: ReqOutput) -> None:
        if out.finished is None or (children := self._waiting.pop(out.rid, None)) is None:
            return
        if out.usage is not None:
            children[0].prefilled_tokens += out.usage.computed_tokens
        for child in children:
            child.is_born = True
        self._go_on(children)

    def drop_failed(self) -> None:
        """Stop the prefills for which nobody waits any more."""
        for rid, children in list(self._waiting.items()):
            if all(child.failed is not None for child in children):
                del self._waiting[rid]
                self._port.send(AbortReq(rid))


def _will_run(branch: Branch) -> bool:
    return any(isinstance(op, _REQUESTS) for op in branch.queue)
