"""What the server costs beside the engine in process, on the embedded model and one machine.

The same greedy requests by `Engine.generate` in this process and by HTTP on the loopback, one at a time: time of a request of one
token, time to the first token and between tokens of a stream, each as p50 and p99, and the difference. Then requests a second of
one-token answers at a few concurrencies; and a program of 50 gens on 5 forks: as one request of the tree, and as one request for each
gen, with the round trips of each and the makespan.

    python -m benchmarks.http_overhead --num 200 --json http_overhead.json
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

import sglang_lite as sgl
from benchmarks.report import environment
from sglang_lite.cli.load import percentile
from sglang_lite.lang.backends.generate_api import GenerateBackend
from sglang_lite.lang.backends.http_client import HttpClient
from sglang_lite.lang.chat_templates import named_template

STREAMED = 32
FORKS, GENS = 5, 10


def params(max_new_tokens: int) -> dict[str, Any]:
    return {"max_new_tokens": max_new_tokens, "temperature": 0, "ignore_eos": True}


def ways(values: list[float]) -> dict[str, float | None]:
    return {f"p{p}_ms": None if (v := percentile(values, p)) is None else v * 1000 for p in (50, 99)}


def timed(prompts: list[str], ask: Callable[[str], Any]) -> list[float]:
    """Seconds of each request, one after the other."""
    times: list[float] = []
    for prompt in prompts:
        begun = time.perf_counter()
        ask(prompt)
        times.append(time.perf_counter() - begun)
    return times


def streamed(prompts: list[str], stream: Callable[[str], Iterator[Any]]) -> tuple[list[float], list[float]]:
    """Seconds to the first token, and between tokens."""
    first: list[float] = []
    between: list[float] = []
    for prompt in prompts:
        last = time.perf_counter()
        for number, _ in enumerate(stream(prompt)):
            now = time.perf_counter()
            (between if number else first).append(now - last)
            last = now
    return first, between


def http_stream(http: httpx.Client, prompt: str) -> Iterator[str]:
    body = {"text": prompt, "sampling_params": params(STREAMED), "stream": True}
    with http.stream("POST", "/generate", json=body) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                yield line


def one_by_one(engine: sgl.Engine, http: httpx.Client, num: int) -> dict[str, Any]:
    """Latencies of both ways, and by how much the second one's are longer."""

    def prompts(what: str, count: int) -> list[str]:
        return [f"{what} {i}: tell me about the sea." for i in range(count)]

    def ask_http(prompt: str) -> None:
        http.post("/generate", json={"text": prompt, "sampling_params": params(1)}).raise_for_status()

    few = max(num // 8, 4)
    for warm in prompts("warm", 8):
        engine.generate(warm, params(4))
        ask_http(warm)
    here = timed(prompts("a", num), lambda prompt: engine.generate(prompt, params(1)))
    there = timed(prompts("a", num), ask_http)
    streams: dict[str, tuple[list[float], list[float]]] = {
        "in process": streamed(prompts("s", few), lambda p: engine.generate(p, params(STREAMED), stream=True)),  # type: ignore[arg-type,return-value]
        "http": streamed(prompts("s", few), lambda p: http_stream(http, p)),
    }
    result: dict[str, Any] = {
        "request_of_one_token": {"in process": ways(here), "http": ways(there)},
        "first_token": {name: ways(first) for name, (first, _) in streams.items()},
        "streamed_token": {name: ways(between) for name, (_, between) in streams.items()},
    }
    for row in result.values():
        row["overhead"] = {key: row["http"][key] - row["in process"][key] for key in row["http"]}
    return result


def requests_per_s(url: str, num: int) -> dict[str, float]:
    """Answers of one token to prompts that differ, by how many clients ask at a time."""
    found: dict[str, float] = {}
    for clients in (1, 4, 16):
        local = threading.local()

        def ask(number: int, clients: int = clients, local: threading.local = local) -> None:
            http = getattr(local, "http", None)
            if http is None:
                http = local.http = httpx.Client(base_url=url, timeout=300, trust_env=False)
            text = f"{clients} clients, question {number}?"
            http.post("/generate", json={"text": text, "sampling_params": params(1)}).raise_for_status()

        begun = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(ask, range(num)))
        found[str(clients)] = num / (time.perf_counter() - begun)
    return found


@sgl.function
def tree(s: Any, topic: str) -> None:
    s += f"Notes about {topic}.\n"
    forks = s.fork(FORKS)
    for number, fork in enumerate(forks):
        for step in range(GENS):
            fork += (
                f"Point {number}.{step}: " + sgl.gen(f"g{step}", max_tokens=4, temperature=0, ignore_eos=True) + "\n"
            )
    forks.join()


class Counted(HttpClient):
    """Counts requests."""

    num = 0

    async def request(self, *args: Any, **kwargs: Any) -> Any:
        """As the client's, counted."""
        Counted.num += 1
        return await super().request(*args, **kwargs)

    def events(self, *args: Any, **kwargs: Any) -> Any:
        """As the client's, counted."""
        Counted.num += 1
        return super().events(*args, **kwargs)


def program(url: str, rounds: int) -> dict[str, Any]:
    """Round trips and makespan of the same program both ways; the cache is emptied before each run."""
    whole = sgl.RuntimeEndpoint(url)
    whole._http = Counted(url)  # pyright: ignore[reportPrivateUsage]
    each = GenerateBackend(Counted(url), named_template("default"), 60.0)
    result: dict[str, Any] = {}
    for name, backend in (("one tree", whole), ("one request a gen", each)):
        times: list[float] = []
        Counted.num = 0
        for number in range(rounds):
            sgl.RuntimeEndpoint(url).flush_cache()
            begun = time.perf_counter()
            tree.run(f"topic {number}", backend=backend)
            times.append(time.perf_counter() - begun)
        result[name] = {"round_trips": Counted.num / rounds, "makespan_s": percentile(times, 50)}
        backend.shutdown()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="OUT")
    args = parser.parse_args()
    report: dict[str, Any] = {"environment": environment()}
    with (
        sgl.Engine() as engine,
        sgl.Runtime() as runtime,
        httpx.Client(base_url=runtime.url, timeout=300, trust_env=False) as http,
    ):
        report |= one_by_one(engine, http, args.num)
        report["requests_per_s"] = requests_per_s(runtime.url, args.num)
        report["program_of_50_gens"] = program(runtime.url, args.rounds)
    print(json.dumps({name: value for name, value in report.items() if name != "environment"}, indent=1))
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
