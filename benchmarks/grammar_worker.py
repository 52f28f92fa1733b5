"""One grammar engine in a process of its own: compiles an item, walks texts through it and measures processor time.

A process of its own bounds every item by a deadline (a compiler that hangs is ended with its process) and keeps memory apart.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.grammar_peers import ENGINES, RefusedError, Session, embedded_tokenizer

_CLOCK = time.thread_time_ns
_START_S = 300.0


def measure(engine: Any, eos_ids: list[int], kind: str, source: Any, texts: list[list[int]]) -> dict[str, Any]:
    """Compile the item, walk each text (token ids) with a mask before each token and the end required; times in microseconds."""
    begin = _CLOCK()
    try:
        compiled = engine.compile(kind, source)
    except RefusedError as error:
        return {"status": "refused", "why": str(error)[:300], "compile_us": (_CLOCK() - begin) / 1e3}
    found: dict[str, Any] = {"status": "ok", "compile_us": (_CLOCK() - begin) / 1e3, "verdicts": []}
    first: list[float] = []
    cached: list[float] = []
    accept: list[float] = []
    for number, ids in enumerate(texts):
        if compiled is None:
            found["verdicts"].append(False)
            continue
        spent = len(first), len(cached), len(accept)
        verdict = _walk(engine, engine.session(compiled), eos_ids, compiled, ids, (first, cached, accept))
        found["verdicts"].append(verdict)
        if number == 0:
            found["instance_us"] = sum(
                sum(times[at:]) for times, at in zip((first, cached, accept), spent, strict=True)
            )
    found |= {"first_us": first, "cached_us": cached, "accept_us": accept}
    found["memory"] = None if compiled is None else engine.memory(compiled)
    return found


def _walk(
    engine: Any, session: Session, eos_ids: list[int], compiled: Any, ids: list[int], times: tuple[list[float], ...]
) -> bool:
    """Whether the text goes through and may end."""
    first, cached, accept = times
    bitmask = engine.bitmask
    row = bitmask[0]
    before = engine.misses(compiled)
    for token_id in [*ids, None]:
        begin = _CLOCK()
        session.fill(bitmask)
        spent = (_CLOCK() - begin) / 1e3
        after = engine.misses(compiled)
        (first if after is None or after != before else cached).append(spent)
        before = after
        if token_id is None:
            break
        if not int(row[token_id >> 5]) >> (token_id & 31) & 1:
            return False
        begin = _CLOCK()
        went = session.accept(token_id)
        accept.append((_CLOCK() - begin) / 1e3)
        if not went:
            return False
    return any(int(row[eos >> 5]) >> (eos & 31) & 1 for eos in eos_ids)


def forced_share(engine: Any, kind: str, source: Any, ids: list[int]) -> dict[str, int] | None:
    """Over the tokens of one text, how many are forced, in how many runs, and how many runs are not as the text is tokenised."""
    try:
        compiled = engine.compile(kind, source)
    except RefusedError:
        return None
    if compiled is None:
        return None
    session = engine.session(compiled)
    found = {"tokens": len(ids), "forced": 0, "runs": 0, "not_canonical": 0}
    at = 0
    while at < len(ids):
        run = session.forced()
        found["runs"] += bool(run)
        same = run == ids[at : at + len(run)]
        found["not_canonical"] += not same
        step = ids[at : at + len(run)] if run and same else ids[at : at + 1]
        found["forced"] += len(run) if run and same else 0
        if not all(session.accept(token_id) for token_id in step):
            return None
        at += len(step)
    return found


def serve(name: str, pipe: Connection) -> None:
    """Answer jobs from `pipe` until it closes."""
    tokenizer = embedded_tokenizer()
    engine = ENGINES[name](tokenizer)
    gc.collect()
    gc.freeze()  # what was loaded for all items is not looked through while one of them is measured
    pipe.send("ready")
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        if job[0] == "forced":
            pipe.send(forced_share(engine, *job[1:]))
        else:
            pipe.send(measure(engine, sorted(tokenizer.eos_ids), *job[1:]))


class Worker:
    """The process of one engine; started anew after an item that ran into its deadline or ended the process."""

    def __init__(self, name: str, deadline_s: float) -> None:
        self.name = name
        self._deadline_s = deadline_s
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(self.name, theirs), daemon=True)
        self._process.start()
        theirs.close()
        if not self._pipe.poll(_START_S) or self._pipe.recv() != "ready":
            raise RuntimeError(f"the engine {self.name} does not start")

    def ask(self, *job: Any) -> Any:
        """The answer to a job; a dict with the status `timeout` or `crash` where there is none."""
        status = "timeout"
        try:
            self._pipe.send(job)
            if self._pipe.poll(self._deadline_s):
                return self._pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            status = "crash"
        self.close()
        self._start()
        return {"status": status, "compile_us": self._deadline_s * 1e6}

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.kill()
        self._process.join()
