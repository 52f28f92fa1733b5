"""A server under everything that clients do, for a while: nothing may leak, and its answers stay those of a quiet server.

Starts a server with the embedded model on the loopback, asks it in quiet for its answers, then lets clients at it: good requests and
programs beside disconnects, aborts, malformed, huge and half bodies, slow readers and forgotten programs, while the scheduler process is
killed (`kill -9`) now and then. At the end no request, program, page or lock may be left, no thread, file or socket more than after the
first quarter, no growth of memory, and every answer has to be right. The exit code is 1 where something is wrong. Linux only.

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

_SETTLE_S = 90.0
_MORE_THREADS, _MORE_FILES, _MORE_BYTES = 8, 16, 64 << 20
"""What the server's process may have more at the end than after the first quarter: pools that had not filled by then."""


def children(pid: int) -> list[int]:
    """Processes that `pid` started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(one) for one in (task / "children").read_text().split()]
    return found


def usage(pid: int) -> dict[str, int]:
    """Threads, open files and sockets, and resident bytes of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    names = [os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir() if one.is_symlink()]
    return {
        "threads": len(list(Path(f"/proc/{pid}/task").iterdir())),
        "files": len(names),
        "sockets": sum(name.startswith("socket:") for name in names),
        "bytes": pages * os.sysconf("SC_PAGE_SIZE"),
    }


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


async def attack(runtime: sgl.Runtime, traffic: Traffic, seconds: float, kills: int, clients: int) -> dict[str, Any]:
    """Traffic for `seconds`, kills spread over it; returns the usage after the first quarter."""
    running = asyncio.create_task(traffic.run(clients))
    begun = time.monotonic()
    early: dict[str, Any] = {}
    due = [seconds * (number + 1) / (kills + 1) for number in range(kills)]
    while (now := time.monotonic() - begun) < seconds:
        if not early and now >= seconds / 4:
            early = await asyncio.to_thread(usage, runtime.pid)
        if due and now >= due[0]:
            due.pop(0)
            for pid in children(runtime.pid):
                os.kill(pid, signal.SIGKILL)
                traffic.counts["kills"] += 1
        await asyncio.sleep(0.1)
    traffic.is_over = True
    await running
    return early or usage(runtime.pid)


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


def soak(
    seconds: float, kills: int, clients: int = 12, seed: int = 0, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Run it all; `report["wrong"]` is empty where the server has stood it."""
    with sgl.Runtime(restart=True, max_running_requests=8, max_queued_requests=64, drain_deadline_s=1.0) as runtime:
        say(f"quiet answers of {runtime.url}")
        answers, texts = quiet_answers(runtime.url)
        traffic = Traffic(runtime.url, answers, texts, seed)
        say(f"{clients} clients for {seconds:.0f} s, {kills} kills of the scheduler")
        early = asyncio.run(attack(runtime, traffic, seconds, kills, clients))
        info = settled(runtime.url)
        late = usage(runtime.pid)
        wrong = traffic.wrong + leaks(info, early, late)
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
