"""Public reports about the prefix cache, as tests of their whole kind (C09 stands with the engine's log-probabilities)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sglang_lite.runtime.engine.engine import Engine
from sglang_lite.runtime.memory.radix_cache import RadixCache
from sglang_lite.runtime.memory.tree_node import TOKEN_BYTES, token_key
from tests.support.engine_fixture import Reference, running_engine

SOME_IDS = np.random.default_rng(5).integers(1000, 20000, 200).tolist()
"""Ids of words and word pieces; what they mean does not matter."""
PAGE = 16


@pytest.mark.model
def test_a_second_turn_reuses_what_the_first_generated(engine: Engine) -> None:
    """C11: the cache was keyed with prompt tokens only, so a second chat turn computed the first answer again."""
    prompt, more = SOME_IDS[:100], SOME_IDS[100:120]
    params = {"temperature": 0.0, "max_new_tokens": 50, "ignore_eos": True}
    engine.flush_cache()
    first = engine.generate(input_ids=prompt, sampling_params=params)["output_ids"]
    second = [*prompt, *first, *more]
    warm = engine.generate(input_ids=second, sampling_params=params | {"max_new_tokens": 8})
    assert warm["meta_info"]["cached_tokens"] >= 100 + 50 - 1
    Reference(engine, [second], 8).check([warm["output_ids"]])


def size(tree: RadixCache) -> int:
    return sum(len(node.pages) for node in tree.nodes())


def remember(tree: RadixCache, ids: Sequence[int], first_page: int) -> None:
    key = token_key(ids, 0, len(ids))
    match = tree.match("", key)
    handle = tree.lock("", match)
    pages = np.arange(first_page + match.num_pages, first_page + len(ids), dtype=np.int32)
    tree.insert(handle.node, key[match.num_pages * TOKEN_BYTES :], pages, None)
    tree.unlock(handle)
    assert tree.evictable_pages + tree.protected_pages == size(tree)


@pytest.mark.parametrize("splits_after", [True, False])
def test_a_node_in_use_is_not_evicted(splits_after: bool) -> None:
    """C13: a lock raised the count of the parents but not of the node itself; also where a split comes after the lock."""
    tree, ids = RadixCache(1), list(range(1, 9))
    remember(tree, ids, 10)
    if not splits_after:
        remember(tree, [1, 2, 3, 4, 9, 10], 30)
    handle = tree.lock("", tree.match("", token_key(ids, 0, 8)))
    if splits_after:
        remember(tree, [1, 2, 3, 4, 9, 10], 30)
    assert (tree.evictable_pages, tree.protected_pages) == (2, 8)
    freed = tree.evict(tree.evictable_pages).tolist()
    assert sorted(freed) == [34, 35]
    assert tree.match("", token_key(ids, 0, 8)).num_pages == 8
    assert [page for node in tree.path(handle.node) for page in node.pages.tolist()] == list(range(10, 18))
    assert tree.evictable_pages + tree.protected_pages == size(tree) == 8
    tree.unlock(handle)
    assert all(node.lock_ref == 0 for node in tree.nodes())
    assert (tree.evictable_pages, tree.protected_pages) == (8, 0)
    assert sorted(tree.evict(8).tolist()) == list(range(10, 18))
    assert size(tree) == tree.evictable_pages == 0


@pytest.fixture(scope="module")
def uncached() -> Reference:
    """Prompts of lengths around the page size, and each with 1, 2 and 7 tokens more, without any cache."""
    lengths = (1, 2, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 97)
    prompts = [SOME_IDS[i : i + length] for i, length in enumerate(lengths)]
    longer = [prompt + SOME_IDS[150 : 150 + more] for prompt in prompts for more in (1, 2, 7)]
    with running_engine(disable_radix_cache=True, max_total_tokens=2048) as engine:
        return Reference(engine, prompts + longer, 8, one_by_one=False)


@pytest.mark.model
@pytest.mark.parametrize("settings", [{}, {"chunked_prefill_size": PAGE}, {"page_size": 1}], ids=str)
def test_going_on_from_the_cache_changes_nothing(settings: dict[str, Any], uncached: Reference) -> None:
    """C15: resuming from cached state gave degenerate text; an exact repeat must leave one token to compute."""
    prompts, params = uncached.prompts, uncached.params
    with running_engine(max_total_tokens=2048, **settings) as engine:
        first = engine.generate(input_ids=prompts[:7], sampling_params=params[:7])
        again = engine.generate(input_ids=prompts[:7], sampling_params=params[:7])
        longer = engine.generate(input_ids=prompts[7:], sampling_params=params[7:])
    for replies in (first, again):
        uncached.check([reply["output_ids"] for reply in replies + longer])
    assert [reply["meta_info"]["cached_tokens"] for reply in again] == [len(prompt) - 1 for prompt in prompts[:7]]
    for number, reply in enumerate(longer):
        assert reply["meta_info"]["cached_tokens"] >= len(prompts[number // 3])
