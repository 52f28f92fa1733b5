"""What an engine is doing, as plain data for a viewer: its requests, its radix tree, its counters; it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from hashlib import blake2b
from itertools import islice
from typing import Any

from sglang_lite.runtime.memory.tree_node import TOKEN_BYTES, TreeNode
from sglang_lite.runtime.scheduler.req import Req
from sglang_lite.runtime.scheduler.scheduler import Scheduler

TextOf = Callable[[Sequence[int]], str]

_SHOWN_TOKENS = 48
_MAX_REQUESTS = 200


def look(scheduler: Scheduler, text_of: TextOf | None, max_nodes: int) -> dict[str, Any]:
    """Everything a viewer shows; on the thread that owns the scheduler.

    Args:
        text_of: ids to text; None: no texts, only counts.
        max_nodes: of the tree; what is left off is counted.

    Returns:
        `statistics`: the scheduler's counts. `requests`: `{"rid", "place", "prompt_tokens", "output_tokens", "cached_tokens",
        "max_new_tokens", "retractions"}` and `text`, the end of the prompt. `tree`: `page_size`, `nodes` (`id`, `parent`,
        `depth`, `tokens`, `pages`, `locks`, `last_use`, `leases`, `is_tail`, `namespace`, `text`; parents first) and
        `left_off`. An `id` stands for the tokens from the root to the node's end.
    """
    places = scheduler.places()
    return {
        "statistics": asdict(scheduler.statistics()),
        "requests": [_request(place, req, text_of) for place, req in places[:_MAX_REQUESTS]],
        "requests_left_off": max(len(places) - _MAX_REQUESTS, 0),
        "tree": _tree(scheduler, text_of, max_nodes),
    }


def _request(place: str, req: Req, text_of: TextOf | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        "rid": req.rid,
        "place": place,
        "prompt_tokens": req.prompt_len,
        "output_tokens": len(req.output_ids),
        "cached_tokens": req.counts.cached_tokens,
        "max_new_tokens": req.text.rules.max_new_tokens,
        "retractions": req.counts.retractions,
    }
    return data if text_of is None else data | {"text": text_of(req.add.input_ids[-_SHOWN_TOKENS:])}


def _tree(scheduler: Scheduler, text_of: TextOf | None, max_nodes: int) -> dict[str, Any]:
    kv = scheduler.kv
    names: dict[int, str] = {}
    nodes: list[dict[str, Any]] = []
    left_off = 0
    walk = kv.tree_nodes()
    for depth, node in islice(walk, max_nodes):
        parent = names.get(id(node.parent)) if node.parent is not None else None
        name = names[id(node)] = _name(node, parent)
        nodes.append(_node(node, depth, name, parent, text_of))
    left_off = sum(1 for _ in walk)
    return {"page_size": kv.page_size, "nodes": nodes, "left_off": left_off}


def _name(node: TreeNode, parent: str | None) -> str:
    start = node.namespace if parent is None else parent
    return blake2b(start.encode() + b"/" + node.key, digest_size=8).hexdigest()


def _node(node: TreeNode, depth: int, name: str, parent: str | None, text_of: TextOf | None) -> dict[str, Any]:
    data: dict[str, Any] = {
        "id": name,
        "parent": parent,
        "depth": depth,
        "tokens": len(node.key) // TOKEN_BYTES,
        "pages": len(node.pages),
        "locks": node.lock_ref,
        "last_use": node.last_use,
        "leases": len(node.leases),
        "is_tail": node.is_tail,
    }
    if text_of is None:
        return data
    shown = node.key[: _SHOWN_TOKENS * TOKEN_BYTES]
    ids = [int.from_bytes(shown[at : at + TOKEN_BYTES], "big") for at in range(0, len(shown), TOKEN_BYTES)]
    return data | {"namespace": node.namespace, "text": text_of(ids)}
