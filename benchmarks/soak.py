"""A server under everything that clients do, for a while: nothing may leak, and its answers stay those of a quiet server.

Starts a server with the embedded model on the loopback, asks it in quiet for its answers, then lets clients at it: good requests and
programs beside disconnects, aborts, malformed, huge and half bodies, slow readers and forgotten programs, while the scheduler process is
killed (`kill -9`) now and then in the first half. At the end no request, program, page or lock may be left, no thread, file or socket more
than after the first quarter, the memory of the server and of its last scheduler has to be flat, and every answer has to be right. The
exit code is 1 where something is wrong. Linux only.

    python -m benchmarks.soak --seconds 600 --kills 6 --json soak.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

import sglang_lite as sgl
from benchmarks.report import environment
from benchmarks.soak_traffic import TOPICS, Traffic, notes, prompts
from benchmarks.soak_usage import Curve, Watch, children, usage

_SETTLE_S = 90.0
_MAX_TOTAL_TOKENS = 4096
"""A small pool of KV: it is full soon, so that what grows behind that is a leak, and eviction works all the time."""
_KILLS_UNTIL = 0.5
"""Share of the time in which the scheduler is killed; the last one lives the rest, long enough to see whether it grows."""
_SAMPLES = 120
_SETTLED_S = 120.0
"""A life in which the memory has come to rest."""
_FLAT_BYTES = 24 << 20
"""What the line through a process's memory may rise: noise of the allocator."""
_MORE_THREADS, _MORE_FILES, _MORE_BYTES = 8, 16, 64 << 20
"""What the server's process may have more at the end than after the first quarter: pools that had not filled by then."""


def quiet_answers(url: str) -> tuple[dict[str, str], dict[str, str]]:
    """The answers of a server with nothing else to do, one after the other."""
    with httpx.Client(base_url=url, timeout=300, trust_env=False) as http:
        replies = {
            body["text"]: http.post("/generate", json=body).raise_for_status().json()["text"] for body in prompts()
        }
    backend = sgl.RuntimeEndpoint(url)
    texts = {topic: notes.run(topic, backend=backend).text() for topic in TOPICS}
    backend.shutdown()
    return replies, texts


async def attack(runtime: sgl.Runtime, traffic: Traffic, seconds: float, kills: int, clients: int) -> Watch:
    """Traffic for `seconds`, kills spread over their first part; returns what the processes held meanwhile."""
    running = asyncio.create_task(traffic.run(clients))
    begun = time.monotonic()
    watch = Watch(runtime.pid)
    next_sample = 0.0
    due = [seconds * _KILLS_UNTIL * (number + 1) / (kills + 1) for number in range(kills)]
    while (now := time.monotonic() - begun) < seconds:
        if now >= next_sample:
            await asyncio.to_thread(watch.sample, now)
            next_sample = now + seconds / _SAMPLES
        if due and now >= due[0]:
            due.pop(0)
            for pid in children(runtime.pid):
                os.kill(pid, signal.SIGKILL)
                traffic.counts["kills"] += 1
        await asyncio.sleep(0.1)
    traffic.is_over = True
    await running
    return watch


def settled(url: str) -> dict[str, Any]:
    """What the server says of itself once nothing runs any more, its cache emptied; or what it last said."""
    info: dict[str, Any] = {}
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
        deadline = time.monotonic() + _SETTLE_S
        while time.monotonic() < deadline:
            reply = http.get("/get_server_info")
            if reply.status_code == 200:
                info = reply.json()
                if not left_over(info) and http.post("/flush_cache").status_code == 200:
                    return http.get("/get_server_info").json()
            time.sleep(0.2)
    return info


def left_over(info: dict[str, Any]) -> dict[str, int]:
    """Requests and programs that have not ended."""
    names = ("waiting", "waiting_for_grammar", "prefilling", "running", "scoring", "programs")
    return {name: info[name] for name in names if info.get(name)}


def leaks(info: dict[str, Any], early: dict[str, int], late: dict[str, int]) -> list[str]:
    """What is there and should not be, in words."""
    found = [f"{count} {name} are left" for name, count in left_over(info).items()]
    kv: dict[str, int] = info["kv"]
    held = {
        "pages": kv["total_pages"] - kv["free_pages"],
        "rows": kv["total_rows"] - kv["free_rows"],
        "locked pages": kv["protected_pages"],
        "leases": kv["leases"],
    }
    found += [f"{count} {name} of the KV pool are not free" for name, count in held.items() if count]
    for name, more in (
        ("threads", _MORE_THREADS),
        ("files", _MORE_FILES),
        ("sockets", _MORE_FILES),
        ("bytes", _MORE_BYTES),
    ):
        if late[name] > early[name] + more:
            found.append(f"the server's process has {late[name]} {name}, after the first quarter it had {early[name]}")
    return found


def grown(name: str, curve: Curve) -> list[str]:
    """The growth of a process's memory, in words, where it is more than noise; nothing of a life too short to tell."""
    if curve.seconds[-1] - curve.seconds[0] < _SETTLED_S or curve.growth() <= _FLAT_BYTES:
        return []
    return [f"the memory of the {name} grew by {curve.growth() / 2**20:.0f} MiB, expected at most {_FLAT_BYTES >> 20}"]


def soak(
    seconds: float, kills: int, clients: int = 12, seed: int = 0, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Run it all; `report["wrong"]` is empty where the server has stood it."""
    with sgl.Runtime(
        restart=True,
        max_running_requests=8,
        max_queued_requests=64,
        max_total_tokens=_MAX_TOTAL_TOKENS,
        drain_deadline_s=1.0,
    ) as runtime:
        say(f"quiet answers of {runtime.url}")
        answers, texts = quiet_answers(runtime.url)
        traffic = Traffic(runtime.url, answers, texts, seed)
        say(f"{clients} clients for {seconds:.0f} s, {kills} kills of the scheduler")
        watch = asyncio.run(attack(runtime, traffic, seconds, kills, clients))
        early = watch.server.samples[len(watch.server.samples) // 4]
        info = settled(runtime.url)
        late = usage(runtime.pid)
        wrong = traffic.wrong + leaks(info, early, late)
        wrong += grown("server", watch.server) + grown("last scheduler", watch.last_scheduler)
        again = quiet_answers(runtime.url)
        if again != (answers, texts):
            wrong.append("the answers after it are not those of before")
        if (num_children := len(children(runtime.pid))) != 1:
            wrong.append(f"the server has {num_children} processes beside it, expected its scheduler")
    return {
        "seconds": seconds,
        "counts": dict(traffic.counts.most_common()),
        "usage_early": early,
        "usage_late": late,
        "memory": {"server": watch.server.report(), "last_scheduler": watch.last_scheduler.report()},
        "restarts": info.get("restarts"),
        "kv": info["kv"],
        "wrong": wrong,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="OUT")
    args = parser.parse_args()
    report = soak(args.seconds, args.kills, args.clients, args.seed)
    print(json.dumps(report, indent=1))
    if args.json:
        Path(args.json).write_text(json.dumps({"environment": environment()} | report) + "\n", encoding="utf-8")
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
