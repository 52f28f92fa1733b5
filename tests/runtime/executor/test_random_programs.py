"""Random programs through the executor, the real scheduler and memory, and a fake model, step by step."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from sglang_lite.errors import SglangLiteError
from sglang_lite.request_tree import (
    AcceptOp,
    AnswerOp,
    CountOp,
    DecideOp,
    EndOp,
    Event,
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
    RefuseOp,
    RetryOp,
    RewindOp,
    RoleBeginOp,
    RoleEndOp,
    SamplingParams,
    SelectOp,
    TextOp,
)
from sglang_lite.runtime.executor.tree_executor import TreeExecutor
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.messages import AddReq, Message, ReqOutput
from sglang_lite.runtime.scheduler.scheduler import Scheduler
from tests.support.fake_runner import FakeRunner, Oracle, chain
from tests.support.toy_text import END, VOCAB_SIZE, toy_text

PAGE, CONTEXT = 4, 120
TEXT = toy_text()


class StepPort:
    """The engine's loop by hand; the executor is the real one."""

    def __init__(self, pool_pages: int) -> None:
        kv = KvManager(num_rows=6, num_pages=pool_pages + 1, page_size=PAGE, max_len=CONTEXT)
        config = SchedulerConfig(
            context_length=CONTEXT, vocab_size=VOCAB_SIZE, eos_ids=frozenset({END}), chunked_prefill_size=16
        )
        self.kv = kv
        self.scheduler = Scheduler(config, kv, TEXT.visible_bytes)
        self.executor = TreeExecutor(self, TEXT)
        self.requests: dict[str, AddReq] = {}
        self.outputs: dict[str, list[int]] = {}
        self._runner = FakeRunner(pool_pages + 1, PAGE, VOCAB_SIZE)
        self._messages: list[Message] = []
        self._handlers: dict[str, Callable[[ReqOutput], None]] = {}
        self._rids = itertools.count()

    def submit(self, req: AddReq, on_output: Callable[[ReqOutput], None]) -> None:
        self.requests[req.rid], self._handlers[req.rid] = req, on_output
        self._messages.append(req)

    def send(self, message: Message) -> None:
        self._messages.append(message)

    def prepare_grammar(self, params: SamplingParams) -> None:
        return None

    def new_rid(self) -> str:
        return f"r{next(self._rids)}"

    @property
    def has_work(self) -> bool:
        return bool(self._messages) or self.scheduler.has_work

    def step(self) -> None:
        messages, self._messages = self._messages, []
        plan = self.scheduler.step(messages)
        for out in self.scheduler.commit(self._runner.run(plan)):
            self.outputs.setdefault(out.rid, []).extend(out.new_ids)
            self._handlers[out.rid](out)
        self.scheduler.check_invariants()
        self._runner.poison(self.kv.snapshot().free)
        self.executor.sweep()


def says(req: AddReq, count: int) -> list[int]:
    """What the fake model says to a request alone."""
    oracle, h, ids = Oracle(VOCAB_SIZE), chain(req.input_ids)[-1], list[int]()
    for position in range(len(req.input_ids), len(req.input_ids) + count):
        token = oracle.next_token(h, req.sampling, req.sampling.seed or 0, position, None)
        assert token is not None
        ids.append(token)
        h = chain([token], h, position)[0]
    return ids


def asked_by(op: AnswerOp) -> int:
    return op.select if isinstance(op, DecideOp) else op.gen


class Programs(RuleBasedStateMachine):
    """Appends anything anywhere, also what is refused; steps, cancels and closes at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.port = StepPort(pool_pages=26)
        self.events: list[Event] = []
        self.ops: dict[int, Op] = {}
        self.branches = [0]
        self.is_closed = False
        self.forks: list[tuple[int, tuple[int, ...]]] = []
        self.roles: dict[int, bool] = {0: False}
        self.port.executor.open("p", self.events.append, 7)
        self.append(lambda i: TextOp(i, 0, "go"))

    def append(self, make: Callable[[int], Op]) -> None:
        op = make(len(self.ops))
        self.ops[op.id] = op
        self.port.executor.append("p", [op])

    def branch(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(self.branches))

    is_open = precondition(lambda self: not self.is_closed)

    @is_open
    @rule(data=st.data(), text=st.sampled_from(["", "a", "bc", "<|im_end|>", "é", "lo"]), literal=st.booleans())
    def add_text(self, data: st.DataObject, text: str, literal: bool) -> None:
        branch = self.branch(data)
        self.append(lambda i: TextOp(i, branch, text, literal))

    @is_open
    @rule(
        data=st.data(),
        count=st.integers(0, 6),
        n=st.sampled_from([1, 1, 2]),
        stop=st.sampled_from([(), ("a",), ("\xe9",)]),
        hot=st.booleans(),
        stream=st.booleans(),
        hold=st.booleans(),
    )
    def add_gen(
        self, data: st.DataObject, count: int, n: int, stop: tuple[str, ...], hot: bool, stream: bool, hold: bool
    ) -> None:
        branch = self.branch(data)
        params = SamplingParams(max_new_tokens=count, n=n, stop=stop, temperature=float(hot))
        logprob = LogprobParams(0, 1) if hot else None
        self.append(lambda i: GenOp(i, branch, "x", params, logprob, stream, hold))

    @is_open
    @rule(
        data=st.data(),
        choices=st.sampled_from([("yes", "no"), ("", "b"), ("same", "same", "sand")]),
        method=st.sampled_from(["token_length_normalized", "unconditional_likelihood_normalized", "client"]),
    )
    def add_select(self, data: st.DataObject, choices: tuple[str, ...], method: Any) -> None:
        branch = self.branch(data)
        self.append(lambda i: SelectOp(i, branch, "c", choices, method, needs_unconditional=method == "client"))

    @is_open
    @rule(data=st.data(), is_wrong=st.integers(0, 9).map(lambda number: number == 9))
    def add_role(self, data: st.DataObject, is_wrong: bool) -> None:
        branch = self.branch(data)
        begins = not self.roles[branch]
        self.append(lambda i: RoleBeginOp(i, branch, "user") if begins != is_wrong else RoleEndOp(i, branch))
        self.roles[branch] = begins

    @is_open
    @precondition(lambda self: len(self.branches) < 7)
    @rule(data=st.data(), count=st.integers(1, 2))
    def fork(self, data: st.DataObject, count: int) -> None:
        branch = self.branch(data)
        children = tuple(range(len(self.roles), len(self.roles) + count))
        self.append(lambda i: ForkOp(i, branch, children))
        self.branches.extend(children)
        self.roles |= dict.fromkeys(children, self.roles[branch])
        self.forks.append((branch, children))

    @is_open
    @precondition(lambda self: self.forks)
    @rule(data=st.data(), mode=st.sampled_from(["gather", "concat", "first", "vote"]))
    def join(self, data: st.DataObject, mode: Any) -> None:
        branch, children = data.draw(st.sampled_from(self.forks))
        self.forks.remove((branch, children))
        first = data.draw(st.integers(1, len(children))) if mode == "first" else None
        vote = "x" if mode == "vote" else None
        self.append(lambda i: JoinOp(i, branch, children, mode if mode == "concat" else "gather", first, vote))
        self.branches = [other for other in self.branches if other not in children]

    @is_open
    @rule(data=st.data())
    def mark(self, data: st.DataObject) -> None:
        branch = self.branch(data)
        self.append(lambda i: MarkOp(i, branch))

    @is_open
    @precondition(lambda self: any(isinstance(op, MarkOp) for op in self.ops.values()))
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        """Also to marks of ended branches and to those that were rewound past, which is refused."""
        mark = data.draw(st.sampled_from([op for op in self.ops.values() if isinstance(op, MarkOp)]))
        self.append(lambda i: RewindOp(i, mark.branch, mark.id))

    @is_open
    @rule(data=st.data())
    def count(self, data: st.DataObject) -> None:
        branch = self.branch(data)
        self.append(lambda i: CountOp(i, branch))

    @is_open
    @precondition(lambda self: len(self.branches) > 1)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        branch = data.draw(st.sampled_from(self.branches[1:]))
        self.append(lambda i: EndOp(i, branch))
        self.branches.remove(branch)

    @is_open
    @rule(how=st.sampled_from(["accept", "accept", "retry", "keep", "refuse"]), index=st.integers(0, 1))
    def answer(self, how: str, index: int) -> None:
        """Answer every select and gen that waits for its program."""
        ended = {e.op for e in self.events if isinstance(e, OpDone | OpFailed)}
        for op_id in {e.op for e in self.events if isinstance(e, OpScored | OpHeld)} - ended:
            questions = sum(isinstance(e, OpScored | OpHeld) and e.op == op_id for e in self.events)
            answers = sum(isinstance(op, AnswerOp) and asked_by(op) == op_id for op in self.ops.values())
            if questions > answers:
                self.append(lambda i, op=self.ops[op_id]: self.make_answer(i, op, how, index))

    def make_answer(self, new: int, op: Op, how: str, index: int) -> Op:
        if isinstance(op, SelectOp):
            return DecideOp(new, op.branch, op.id, index)
        if how == "accept":
            return AcceptOp(new, op.branch, op.id)
        if how == "refuse":
            return RefuseOp(new, op.branch, op.id, "no")
        return RetryOp(new, op.branch, op.id, "again" * index, keep=how == "keep")

    @is_open
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.port.executor.cancel("p", [data.draw(st.sampled_from(self.branches[-2:]))])

    @rule(count=st.integers(1, 4))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.port.step()

    def drain(self) -> None:
        for _ in range(2000):
            if not self.port.has_work:
                return
            self.port.step()
        raise AssertionError(f"still at work: {self.port.scheduler.statistics()}")

    def teardown(self) -> None:
        """Finish, close, and check that every op has one end, every result is the model's own and nothing is held."""
        self.drain()
        for _ in range(len(self.ops) + 1):
            self.answer("accept", 0)
            self.drain()
        self.is_closed = True
        self.port.executor.close("p")
        self.drain()
        ends = Counter(e.op for e in self.events if isinstance(e, OpDone | OpFailed))
        waiting = {op.id for op in self.ops.values()} - set(ends)
        assert not waiting, f"ops without an end: {[self.ops[i] for i in waiting]}"
        assert max(ends.values(), default=1) == 1
        assert self.port.executor.num_programs == 0
        kv = self.port.kv.statistics()
        assert kv.private_pages == kv.protected_pages == kv.leases == 0
        for rid, ids in self.port.outputs.items():
            assert ids == says(self.port.requests[rid], len(ids))
        for op in self.ops.values():
            self.check_stream(op)

    def check_stream(self, op: Op) -> None:
        (end,) = [e for e in self.events if isinstance(e, OpDone | OpFailed) and e.op == op.id]
        if isinstance(end, OpFailed):
            assert isinstance(end.error, SglangLiteError)
        elif isinstance(op, GenOp) and op.stream and not op.hold:
            assert "".join(e.text for e in self.events if isinstance(e, OpDelta) and e.op == op.id) == end.text


TestPrograms = Programs.TestCase
TestPrograms.settings = settings(stateful_step_count=25)
