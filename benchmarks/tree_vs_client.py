"""Request trees beside a client that sends the whole text for each gen, on one engine and model, workload by workload.

Requests, characters tokenised, prompt tokens computed and reused beside the optimum, makespan, the most KV in use, the share
of the executor's own work; with a large pool, and with a quarter of the KV that the workload has in all. Then, on the scripted
backend, the cost of an op and the threads of a batch, and rows a second of programs that read each value before they go on.

Both ways run on one engine in turns, each round on empty caches of prefixes and of tokenised text, after a round that is not
counted. Counts are those of the last round, times are medians. The executor's share is the time of its thread in its
functions, without what the programs' own sinks take (a share of its own), over the makespan.

    python -m benchmarks.tree_vs_client --json tree_vs_client.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import sglang_lite as sgl
from benchmarks.report import environment
from benchmarks.tree_workloads import Workload, workloads
from benchmarks.whole_text_client import WholeTextClient
from sglang_lite.lang.backends.scripted import ScriptedBackend
from sglang_lite.request_tree import Backend, Event, EventSink, Op

PAGE = 16


class Ideal:
    """Prompt tokens that must be computed if nothing is ever given up: requests one by one, in the order of their ends.

    The last token of a prompt is always computed, for its distribution is wanted.
    """

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        self.computed = 0
        self.kv = 0
        self.longest = 0

    def add(self, ids: Sequence[int], output: Sequence[int], choices: Sequence[Sequence[int]] | None) -> None:
        """One request; its output's tokens but the last are computed as it decodes."""
        known = self._enter(ids)
        self.longest = max(self.longest, len(ids) + max(len(output), *(len(c) for c in choices or [()])))
        self.computed += max(len(ids) - known, 1)
        if output:
            self._enter((*ids, *output[:-1]))
        for choice in choices or ():
            missing = len(ids) + len(choice) - 1 - self._enter((*ids, *choice[:-1]))
            self.computed += max(missing, 0)

    def _enter(self, ids: Iterable[int]) -> int:
        node, known = self._known, 0
        for token in ids:
            if token in node:
                known += 1
            else:
                node[token] = {}
                self.kv += 1
            node = node[token]
        return known


class Watch:
    """Looks at an engine's steps and requests from inside: what no user needs, and a measurement does."""

    def __init__(self, engine: sgl.Engine) -> None:
        self._core: Any = engine._core  # pyright: ignore[reportPrivateUsage]
        self._kv: Any = engine._parts.scheduler.kv  # pyright: ignore[reportPrivateUsage]
        self.reset()
        self._wrap()

    def reset(self) -> None:
        """Count from zero."""
        self.ideal = Ideal()
        self.executor_s = 0.0
        self.sinks_s = 0.0
        self.num_steps = 0
        self.peak_kv = 0

    def _wrap(self) -> None:
        core, executor = self._core, self._core.executor
        for name in ("open", "append", "cancel", "close", "sweep", "open_rows"):
            setattr(executor, name, self._timed(getattr(executor, name)))
        executor.open = self._with_timed_sink(executor.open)
        core._step = self._counted(core._step)
        core.submit = self._recorded(core.submit)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        depth = 0

        def timed(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            start, depth = time.thread_time(), depth + 1
            try:
                return function(*args, **kwargs)
            finally:
                depth -= 1
                if not depth:
                    self.executor_s += time.thread_time() - start

        return timed

    def _with_timed_sink(self, open_program: Callable[..., None]) -> Callable[..., None]:
        def opened(name: str, sink: EventSink, *more: Any) -> None:
            def timed(event: Event) -> None:
                start = time.thread_time()
                try:
                    sink(event)
                finally:
                    took = time.thread_time() - start
                    self.sinks_s += took
                    self.executor_s -= took

            open_program(name, timed, *more)

        return opened

    def _counted(self, step: Callable[[], None]) -> Callable[[], None]:
        def counted() -> None:
            step()
            self.num_steps += 1
            stats = self._kv.statistics()
            self.peak_kv = max(self.peak_kv, (stats.private_pages + stats.protected_pages) * PAGE)

        return counted

    def _recorded(self, submit: Callable[..., None]) -> Callable[..., None]:
        def recorded(req: Any, on_output: Callable[[Any], None]) -> None:
            handle, output = self._timed(on_output), list[int]()

            def received(out: Any) -> None:
                output.extend(out.new_ids)
                if out.finished is not None:
                    self.ideal.add(req.input_ids, output, req.choices)
                handle(out)

            submit(req, received)

        return recorded


class CountedBackend:
    """An engine as programs reach it, counting what a server would get as requests."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.requests = 0

    def open_program(self, sink: EventSink, *, seed: int | None = None) -> Any:
        """Start a program."""
        program = self._engine.open_program(sink, seed=seed)
        append = program.append

        def counted(ops: Sequence[Op]) -> None:
            self.requests += 1
            append(ops)

        program.append = counted
        return program

    def flush_cache(self) -> bool:
        """Of the engine."""
        return bool(self._engine.flush_cache())

    def get_server_info(self) -> dict[str, Any]:
        """Of the engine."""
        return dict(self._engine.get_server_info())

    def shutdown(self) -> None:
        """Nothing: the engine is not this object's."""


def run_workload(workload: Workload, engine: Any, watch: Watch, backend: Backend) -> dict[str, Any]:
    """One run on an empty cache."""
    assert engine.flush_cache(), "nothing runs between two measurements"
    engine.tokenizer.forget_texts()
    before = engine.get_server_info()
    watch.reset()
    if isinstance(backend, WholeTextClient):
        backend.reset()
    requests = getattr(backend, "requests", 0)
    start = time.perf_counter()
    states = list(workload.function.run_batch(list(workload.rows), backend=backend, max_new_tokens=16))
    makespan = time.perf_counter() - start
    for state in states:
        if (error := state.error()) is not None:
            raise error
    after = engine.get_server_info()

    def grown(*names: str) -> int:
        values = [before, after]
        for name in names:
            values = [value[name] for value in values]
        return int(values[1]) - int(values[0])  # type: ignore[call-overload]

    computed = grown("computed_tokens")
    return {
        "requests": getattr(backend, "requests", 0) - requests,
        "chars_tokenised": grown("tokenizer", "tokenised_chars"),
        "prompt_tokens_computed": computed,
        "prompt_tokens_reused": grown("cached_tokens"),
        "optimum": watch.ideal.computed,
        "over_optimum": round(computed / watch.ideal.computed, 4),
        "kv_tokens_in_all": watch.ideal.kv,
        "longest_request": watch.ideal.longest,
        "peak_kv_tokens": watch.peak_kv,
        "retractions": grown("retractions"),
        "steps": watch.num_steps,
        "makespan_s": round(makespan, 3),
        "executor_share": round(watch.executor_s / makespan, 5),
        "sinks_share": round(watch.sinks_s / makespan, 5),
    }


def medians(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The last run with the medians of all times, and the rounds' makespans beside."""
    found = dict(runs[-1])
    for name in ("makespan_s", "executor_share", "sinks_share"):
        found[name] = round(statistics.median(run[name] for run in runs), 5)
    return found | {"makespans_s": [run["makespan_s"] for run in runs]}


def open_engine(pool_tokens: int | None, settings: dict[str, Any]) -> tuple[sgl.Engine, Watch]:
    """An engine that is watched, with everything compiled. `pool_tokens` None: more than any workload has."""
    engine = sgl.Engine(max_total_tokens=pool_tokens or 32768, **settings)
    engine.generate("Warm up.", {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True})
    return engine, Watch(engine)


def compare(scale: float, settings: dict[str, Any], pools: Sequence[str], rounds: int) -> dict[str, Any]:
    """All workloads: both ways with a large pool, and the trees, once, with a quarter of their KV."""
    results: dict[str, Any] = {workload.name: {} for workload in workloads(scale)}
    engine, watch = open_engine(None, settings)
    with engine:
        client = WholeTextClient(engine)
        ways: dict[str, Any] = {"tree": CountedBackend(engine)} | ({"client": client} if "client" in pools else {})
        for backend in ways.values():  # whatever is compiled or loaded at its first use
            run_workload(workloads(0.0)[-1], engine, watch, backend)
        for workload in workloads(scale):
            runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
            for number in range(rounds):
                for way in list(ways)[:: -1 if number % 2 else 1]:
                    runs[way].append(run_workload(workload, engine, watch, ways[way]))
            results[workload.name] |= {way: medians(of_way) for way, of_way in runs.items()}
        client.shutdown()
    for workload in workloads(scale) if "quarter" in pools else ():
        entry = results[workload.name]
        least = -(-entry["tree"]["longest_request"] // PAGE) * PAGE + 4 * PAGE  # or the longest request has no place
        quarter = max(entry["tree"]["kv_tokens_in_all"] // 4 // PAGE * PAGE, least)
        small, watch = open_engine(quarter, settings)
        with small:
            entry["tree, a quarter of the KV"] = run_workload(workload, small, watch, CountedBackend(small))
            entry["tree, a quarter of the KV"] |= {"is_bounded": workload.is_bounded, "pool_tokens": quarter}
    return results


@sgl.function
def six_reads(s: sgl.ProgramState, q: str) -> None:
    """Six values, each read before the next."""
    for number in range(6):
        s += q + sgl.gen(f"x{number}", max_tokens=4)
        s[f"x{number}"]


@sgl.function
async def six_reads_async(s: sgl.ProgramState, q: str) -> None:
    """The same, awaited."""
    for number in range(6):
        s += q + sgl.gen(f"x{number}", max_tokens=4)
        await s.get(f"x{number}")


@sgl.function
def many_ops(s: sgl.ProgramState, q: str) -> None:
    """A dozen ops and no read."""
    for number in range(6):
        s += q + sgl.gen(f"x{number}", max_tokens=4)


def batch_costs(num_rows: int) -> dict[str, Any]:
    """Microseconds an op and threads of `run_batch`, and rows a second with forced reads, on the scripted backend.

    `cpu_us`: of the process, which other work on the machine does not lengthen much.
    """
    rows = [{"q": f"question {number} "} for number in range(num_rows)]
    costs: dict[str, Any] = {"rows": num_rows}
    pure = sgl.SglFunction(many_ops.func, pure=True)
    for name, function in (("run_batch", many_ops), ("run_batch of a pure program", pure)):
        timed_batch(function, rows[:20], ScriptedBackend())
        cpu_s = time.process_time()
        seconds, threads = timed_batch(function, rows, ScriptedBackend())
        cpu_s = time.process_time() - cpu_s
        per_op = {"us_per_op": seconds, "cpu_us_per_op": cpu_s}
        costs[name] = {key: round(value / num_rows / 12 * 1e6, 2) for key, value in per_op.items()} | {
            "threads": threads
        }
    for name, function in (("plain", six_reads), ("async", six_reads_async)):
        cpu_s = time.process_time()
        seconds, threads = timed_batch(function, rows, ScriptedBackend(latency_s=0.001))
        cpu_us = round((time.process_time() - cpu_s) / num_rows * 1e6)
        figures = {"rows_per_s": round(num_rows / seconds), "cpu_us_per_row": cpu_us, "threads": threads}
        costs[f"six forced reads, 1 ms each, {name}"] = figures
    return costs


def timed_batch(function: Any, rows: list[dict[str, str]], backend: ScriptedBackend) -> tuple[float, int]:
    """Seconds of one batch, and the most threads that it had beside those of before."""
    before, most, is_over = threading.active_count(), 0, threading.Event()

    def look() -> None:
        nonlocal most
        while not is_over.wait(0.005):
            most = max(most, threading.active_count() - before - 1)

    watcher = threading.Thread(target=look)
    watcher.start()
    start = time.perf_counter()
    states = list(function.run_batch(rows, backend=backend))
    seconds = time.perf_counter() - start
    is_over.set()
    watcher.join()
    assert all(state.error() is None for state in states), "every row has its values"
    backend.shutdown()
    return seconds, most


def table(results: dict[str, Any]) -> str:
    """The figures, one line a run."""
    columns = (
        ("requests", "requests"),
        ("chars_tokenised", "chars"),
        ("prompt_tokens_computed", "computed"),
        ("prompt_tokens_reused", "reused"),
        ("optimum", "optimum"),
        ("over_optimum", "ratio"),
        ("kv_tokens_in_all", "KV all"),
        ("peak_kv_tokens", "KV peak"),
        ("steps", "steps"),
        ("makespan_s", "seconds"),
        ("executor_share", "executor"),
        ("sinks_share", "sinks"),
    )
    lines = [f"{'':48}" + "".join(f"{title:>10}" for _, title in columns)]
    for name, runs in results.items():
        for way, figures in runs.items():
            lines.append(f"{name + ': ' + way:48}" + "".join(f"{figures[key]:>10}" for key, _ in columns))
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Measure and print; `--json` keeps everything. Exit code 1: a bounded workload computed too much."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of rows")
    parser.add_argument("--rounds", type=int, default=3, help="of both ways with the large pool")
    parser.add_argument("--threads", type=int, help="threads of the engine")
    parser.add_argument("--rows", type=int, default=1000, help="rows on the scripted backend; 0: none")
    parser.add_argument("--no-client", dest="client", action="store_false", help="the trees alone")
    parser.add_argument("--no-quarter", dest="quarter", action="store_false", help="without the small pool")
    parser.add_argument("--json", type=Path, help="write everything to this file")
    args = parser.parse_args(argv)
    settings: dict[str, Any] = {"random_seed": 0} | ({"num_threads": args.threads} if args.threads else {})
    pools = [name for name in ("client", "quarter") if getattr(args, name)]
    results = compare(args.scale, settings, pools, args.rounds)
    print(table(results))
    costs = batch_costs(args.rows) if args.rows else {}
    print(json.dumps(costs, indent=2))
    if args.json:
        report = {"environment": environment(), "workloads": results, "scripted": costs}
        args.json.write_text(json.dumps(report, indent=2), encoding="utf-8")
    bounded = [runs.get("tree, a quarter of the KV", {}) for runs in results.values()]
    return int(any(run.get("is_bounded") and run["over_optimum"] > 1.01 for run in bounded))


if __name__ == "__main__":
    raise SystemExit(main())
