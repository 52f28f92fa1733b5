"""A look at an engine: requests, tree and counts as plain data, changing nothing."""

from __future__ import annotations

import json

from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.engine.look import look
from sglang_lite.runtime.memory.kv import KvManager
from sglang_lite.runtime.scheduler.config import SchedulerConfig
from sglang_lite.runtime.scheduler.messages import AddReq
from sglang_lite.runtime.scheduler.scheduler import Scheduler
from tests.support.toy_text import END, VOCAB_SIZE, toy_text


def make() -> Scheduler:
    kv = KvManager(num_rows=4, num_pages=33, page_size=4, max_len=64)
    for ids in (range(10), [*range(8), 50, 51, 52, 53, 54]):
        admission = kv.admit("", list(ids), match_limit=8, new_len=len(ids))
        assert admission is not None
        kv.commit(admission.hold, len(ids))
        kv.release(admission.hold, list(ids))
    config = SchedulerConfig(context_length=64, vocab_size=VOCAB_SIZE, eos_ids=frozenset({END}))
    return Scheduler(config, kv, toy_text().visible_bytes)


def test_the_tree_is_given_depth_first_with_stable_names() -> None:
    scheduler = make()
    seen = look(scheduler, lambda ids: ",".join(map(str, ids)), 100)
    nodes = seen["tree"]["nodes"]
    by_text = {node["text"]: node for node in nodes}
    shared = by_text["0,1,2,3,4,5,6,7"]
    assert {node["text"] for node in nodes if node["parent"] == shared["id"]} == {"8,9", "50,51,52,53"}
    assert (by_text["8,9"]["is_tail"], shared["pages"], shared["depth"]) == (True, 2, 1)
    assert len({node["id"] for node in nodes}) == len(nodes)
    assert look(scheduler, None, 100)["tree"]["nodes"] == [
        {name: value for name, value in node.items() if name not in ("text", "namespace")} for node in nodes
    ]
    json.dumps(seen)


def test_what_is_over_the_limit_is_counted() -> None:
    seen = look(make(), None, 2)
    assert (len(seen["tree"]["nodes"]), seen["tree"]["left_off"]) == (2, 3)


def test_requests_are_listed_where_they_are_with_texts_only_if_asked() -> None:
    scheduler = make()
    scheduler.receive([AddReq("r", (1, 2, 3), SamplingParams(max_new_tokens=5, seed=0))])
    (shown,) = look(scheduler, None, 0)["requests"]
    assert shown == {
        "rid": "r",
        "place": "waiting",
        "prompt_tokens": 3,
        "output_tokens": 0,
        "cached_tokens": None,
        "max_new_tokens": 5,
        "retractions": 0,
    }
    (shown,) = look(scheduler, lambda ids: str(list(ids)), 0)["requests"]
    assert shown["text"] == "[1, 2, 3]"
