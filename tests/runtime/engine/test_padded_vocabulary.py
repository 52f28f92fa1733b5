"""Ids beyond the tokenizer's, which padded embeddings have: drawn or given, they are tokens without text."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from sglang_lite.errors import ExecutionError, RequestError
from sglang_lite.request_tree import (
    Event,
    GenOp,
    Op,
    OpDone,
    OpFailed,
    RequestTree,
    SamplingParams,
    SelectOp,
    TextOp,
)
from sglang_lite.runtime.engine.engine import Engine
from tests.support.padded_engine import PADDING, ROWS, forced, padded_engine

PROMPT = "hello world"


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with padded_engine(tmp_path_factory.mktemp("padded")) as engine:
        yield engine


def letters(engine: Engine, text: str = "ab") -> list[int]:
    return [engine.tokenizer.encode(letter, parse_special=False)[0] for letter in text]


def test_drawn_they_add_no_text_as_in_transformers(padded: Engine) -> None:
    reply = padded.generate(PROMPT, forced(PADDING))
    assert (reply["text"], reply["output_ids"]) == ("", [PADDING] * 12)
    assert reply["meta_info"]["finish_reason"] == {"type": "length"}
    a, b = letters(padded)
    mixed = padded.generate(PROMPT, forced(PADDING, ROWS - 1, a, b, max_new_tokens=40))
    assert set(mixed["output_ids"]) == {PADDING, ROWS - 1, a, b}
    peer = PreTrainedTokenizerFast.from_pretrained(padded.get_server_info()["model_path"])
    assert mixed["text"] == peer.decode(mixed["output_ids"]) == padded.tokenizer.decode(mixed["output_ids"])


def test_another_request_beside_them_is_not_hurt(padded: Engine) -> None:
    params = {"temperature": 0.0, "max_new_tokens": 12, "ignore_eos": True}
    alone = padded.generate(PROMPT, params)["output_ids"]
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda one: padded.generate(PROMPT, one), [forced(PADDING), params] * 4))
    assert [reply["output_ids"] for reply in replies] == [[PADDING] * 12, alone] * 4


@pytest.mark.parametrize("stop", ["ba", "aab", "nowhere"])
def test_a_stop_string_is_found_around_them(padded: Engine, stop: str) -> None:
    """It is looked for in the text alone; they themselves match nothing."""
    params = forced(PADDING, *letters(padded), max_new_tokens=60)
    free = padded.generate(PROMPT, params)
    assert PADDING in free["output_ids"]
    reply = padded.generate(PROMPT, params | {"stop": stop})
    assert reply["text"] == free["text"].partition(stop)[0]
    assert reply["output_ids"] == free["output_ids"][: len(reply["output_ids"])]
    assert reply["meta_info"]["finish_reason"]["type"] == ("stop" if stop in free["text"] else "length")


def test_a_stop_string_and_a_pattern_do_not_end_what_has_no_text(padded: Engine) -> None:
    reply = padded.generate(PROMPT, forced(PADDING, stop="a", stop_regex="."))
    assert (reply["text"], len(reply["output_ids"])) == ("", 12)


def test_as_a_stop_token_one_ends_the_text(padded: Engine) -> None:
    reply = padded.generate(PROMPT, forced(PADDING, stop_token_ids=[PADDING]))
    assert (reply["text"], reply["output_ids"]) == ("", [])
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": PADDING}


def test_the_pieces_of_a_stream_make_up_the_text(padded: Engine) -> None:
    params = forced(PADDING, *letters(padded), max_new_tokens=40)
    replies = list(padded.generate(PROMPT, params, stream=True))
    assert len(replies) > 1
    assert replies[-1]["text"] == padded.generate(PROMPT, params)["text"]
    assert all(replies[-1]["text"].startswith(reply["text"]) for reply in replies)


def test_log_probabilities_show_them_with_an_empty_text(padded: Engine) -> None:
    reply = padded.generate(
        input_ids=[PADDING, ROWS - 1],
        sampling_params=forced(PADDING),
        return_logprob=True,
        logprob_start_len=0,
        top_logprobs_num=ROWS,
        token_ids_logprob=[ROWS - 1],
        return_text_in_logprobs=True,
    )
    meta = reply["meta_info"]
    shown = [*meta["input_token_logprobs"], *meta["output_token_logprobs"]]
    assert [(token_id, text) for _, token_id, text in shown] == [(PADDING, ""), (ROWS - 1, ""), *[(PADDING, "")] * 12]
    for top in meta["output_top_logprobs"]:
        texts = {token_id: text for _, token_id, text in top}
        assert len(texts) == ROWS
        assert all(texts[token_id] == "" for token_id in range(PADDING, ROWS))
    assert [[one[1:] for one in row] for row in meta["output_token_ids_logprobs"]] == [[(ROWS - 1, "")]] * 12


@pytest.mark.parametrize(
    "constraint",
    [
        {"regex": "[ab]{3}"},
        {"choices": ("aba", "bab")},
        {"json_schema": '{"const": "aba"}'},
        {"regex": "[ab]{3}", "thinking": ("<t>", "</t>"), "thinking_budget": 2},
    ],
)
def test_no_grammar_lets_them_through(padded: Engine, constraint: dict[str, Any]) -> None:
    """However likely they are."""
    reply = padded.generate(PROMPT, forced(PADDING, ROWS - 1, max_new_tokens=40, **constraint))
    assert reply["meta_info"]["finish_reason"]["type"] == "stop"
    assert not {i for i in reply["output_ids"] if i >= PADDING}
    assert reply["text"].strip('"')[-3:] in {"aba", "bab"} or "regex" in constraint


def results(engine: Engine, *ops: Op) -> dict[int, OpDone]:
    """What every op gave, once all are done."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    program = engine.open_program(events.put)
    program.append(ops)
    program.close()
    done: dict[int, OpDone] = {}
    while len(done) < len(ops):
        event = events.get(timeout=60)
        assert not isinstance(event, OpFailed), event
        if isinstance(event, OpDone):
            done[event.op] = event
    return done


def test_a_program_goes_on_behind_them(padded: Engine) -> None:
    """Text is appended to them and a choice scored behind them, whether drawn here or given by another server."""
    given = (PADDING, *padded.tokenizer.encode("hello", parse_special=False), ROWS - 1)
    got = results(
        padded,
        TextOp(0, 0, PROMPT),
        GenOp(1, 0, "a", SamplingParams.from_mapping(forced(PADDING))),
        TextOp(2, 0, "hello", ids=given, is_models=True),
        TextOp(3, 0, " w"),
        SelectOp(4, 0, "b", ("x", "y")),
        GenOp(5, 0, "c", SamplingParams(temperature=0.0, max_new_tokens=8, regex="[ab]{3}")),
    )
    assert (got[1].text, got[1].ids) == ("", (PADDING,) * 12)
    assert got[4].value in ("x", "y")
    assert set(got[5].text) <= {"a", "b"}
    prompt, text = (padded.tokenizer.encode(text, parse_special=False) for text in (PROMPT, " w"))
    assert got[5].meta["prompt_tokens"] == len(prompt) + 12 + len(given) + len(text) + 1


def test_a_trees_grammars_are_checked_over_all_rows(padded: Engine) -> None:
    tree = RequestTree()
    tree.add(TextOp(0, 0, PROMPT))
    tree.add(GenOp(1, 0, "a", SamplingParams(max_new_tokens=8, regex="[ab]{3}")))
    assert [finding.severity for finding in padded.check(tree)] == ["info"]


def test_ids_that_the_embedding_lacks_are_refused_as_before(padded: Engine) -> None:
    with pytest.raises(RequestError, match=f"token id {ROWS}, expected 0 to {ROWS - 1}"):
        padded.generate(input_ids=[5, ROWS])
    with pytest.raises(RequestError, match=f"logit_bias: token id {ROWS}, expected below {ROWS}"):
        padded.generate(PROMPT, forced(ROWS))
    with pytest.raises(ExecutionError, match=f"asked for token {ROWS}, expected ids from 0 to {ROWS - 1}"):
        padded.generate(PROMPT, {"max_new_tokens": 1}, return_logprob=True, token_ids_logprob=[ROWS])


def test_the_view_of_the_tree_shows_them_without_text(padded: Engine) -> None:
    padded.flush_cache()
    given = [PADDING] * 20 + padded.tokenizer.encode(PROMPT, parse_special=False) + [ROWS - 1] * 20
    padded.generate(input_ids=given, sampling_params={"max_new_tokens": 1})
    texts = [node["text"] for node in padded.look(with_texts=True)["tree"]["nodes"]]
    assert PROMPT in texts
