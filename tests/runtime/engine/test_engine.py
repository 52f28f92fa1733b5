"""The whole engine on the embedded model, through its public calls."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.errors import ContextLengthError, EngineStoppedError, GrammarError, RequestError, UnsupportedError
from sglang_lite.request_tree import SamplingParams
from sglang_lite.runtime.engine.engine import Engine
from tests.support.engine_fixture import Reference, peer_logprobs, running_engine

pytestmark = pytest.mark.model

PROMPT = "The capital of France is"
PARAGRAPH = (
    "A river carries water from the hills to the sea. On its way it turns mills, feeds fields and bears boats. Where it "
    "slows down it drops the sand that it took along, and builds new land out of it, year after year, without haste."
)
TOLERANCE = 1e-3


def greedy(max_new_tokens: int = 6, **more: Any) -> dict[str, Any]:
    return {"temperature": 0.0, "max_new_tokens": max_new_tokens, "ignore_eos": True} | more


def running(engine: Engine) -> int:
    """Requests that have not ended."""
    info = engine.get_server_info()
    return sum(info[place] for place in ("waiting", "waiting_for_grammar", "prefilling", "running", "scoring"))


def wait_until_idle(engine: Engine, most_steps: int) -> None:
    """Follow the engine for at most so many steps."""
    first = engine.get_server_info()["step"]
    while running(engine):
        assert engine.get_server_info()["step"] - first <= most_steps, "requests still run"


@pytest.fixture(scope="module")
def reference(engine: Engine) -> Reference:
    """Eight greedy tokens of four prompts."""
    ids = engine.tokenizer.encode(PARAGRAPH, parse_special=False)
    return Reference(engine, [ids[:3], ids[5:17], ids[20:36], ids[:40]], 8)


def test_one_prompt_gives_one_reply_with_text_ids_and_counts(engine: Engine) -> None:
    reply = engine.generate(PROMPT, greedy())
    assert reply["text"].startswith(" Paris")
    ids = reply["output_ids"]
    assert len(ids) == 6
    assert b"".join(engine.tokenizer.visible_bytes[i] for i in ids).decode() == reply["text"]
    meta = reply["meta_info"]
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["forced_tokens"]) == (5, 6, 0)
    assert meta["cached_tokens"] + meta["computed_tokens"] == 5
    assert meta["finish_reason"] == {"type": "length"}
    assert 0 <= meta["queue_time"] < meta["time_to_first_token"] <= meta["e2e_latency"]
    assert meta["evicted_pages"] >= 0


def test_a_list_gives_replies_in_order_equal_to_those_alone(engine: Engine, reference: Reference) -> None:
    replies = engine.generate(input_ids=reference.prompts, sampling_params=reference.params)
    reference.check([reply["output_ids"] for reply in replies])


def test_input_ids_are_as_good_as_text(engine: Engine) -> None:
    ids = engine.tokenizer.encode(PROMPT, parse_special=False)
    assert engine.generate(input_ids=ids, sampling_params=greedy())["text"] == engine.generate(PROMPT, greedy())["text"]


def test_parameters_may_differ_within_a_list(engine: Engine) -> None:
    replies = engine.generate([PROMPT, PROMPT], [greedy(2), SamplingParams(max_new_tokens=3, temperature=0.0)])
    assert [len(reply["output_ids"]) for reply in replies] == [2, 3]


def test_n_samples_come_as_a_list_and_repeat_with_their_seed(engine: Engine) -> None:
    params = {"n": 3, "temperature": 1.0, "max_new_tokens": 6, "ignore_eos": True, "seed": 5}
    first, again = (engine.generate(PROMPT, params) for _ in range(2))
    assert [reply["output_ids"] for reply in first] == [reply["output_ids"] for reply in again]
    assert len({tuple(reply["output_ids"]) for reply in first}) == 3
    solo = engine.generate(PROMPT, params | {"n": 1, "seed": 6})
    assert solo["output_ids"] == first[1]["output_ids"]


def test_without_a_seed_samples_differ(engine: Engine) -> None:
    params = {"temperature": 1.5, "max_new_tokens": 8, "ignore_eos": True}
    replies = engine.generate([PROMPT] * 3, params)
    assert len({tuple(reply["output_ids"]) for reply in replies}) == 3


def test_a_stream_grows_to_the_reply(engine: Engine) -> None:
    whole = engine.generate(PROMPT, greedy(8))
    pieces = list(engine.generate(PROMPT, greedy(8), stream=True))
    assert len(pieces) == 8
    for earlier, later in pairwise(pieces):
        assert later["text"].startswith(earlier["text"])
        assert later["output_ids"][: len(earlier["output_ids"])] == earlier["output_ids"]
    assert [piece["meta_info"]["finish_reason"] for piece in pieces[:-1]] == [None] * 7
    assert (pieces[-1]["text"], pieces[-1]["output_ids"]) == (whole["text"], whole["output_ids"])


def test_a_stream_of_a_list_says_which_prompt_a_piece_is_of(engine: Engine, reference: Reference) -> None:
    last: dict[int, list[int]] = {}
    for piece in engine.generate(input_ids=reference.prompts, sampling_params=reference.params, stream=True):
        last[piece["index"]] = piece["output_ids"]
    reference.check([last[i] for i in range(len(last))])


def test_a_stream_that_is_left_early_frees_its_request(engine: Engine) -> None:
    stream = engine.generate(PROMPT, greedy(500), stream=True)
    assert isinstance(stream, Iterator)
    next(stream)
    assert running(engine) == 1
    stream.close()  # type: ignore[attr-defined]
    wait_until_idle(engine, 2)


def test_calls_work_inside_a_running_event_loop(engine: Engine, reference: Reference) -> None:
    async def main() -> None:
        alone = engine.generate(PROMPT, greedy())
        awaited = await engine.async_generate(PROMPT, greedy())
        assert awaited["output_ids"] == alone["output_ids"]
        ticks = 0
        calls = [
            engine.async_generate(input_ids=ids, sampling_params=params)
            for ids, params in zip(reference.prompts, reference.params, strict=True)
        ]
        gathered = asyncio.gather(*calls)
        while not gathered.done():
            await asyncio.sleep(0)
            ticks += 1
        assert ticks > 1, "the loop was blocked"
        reference.check([reply["output_ids"] for reply in await gathered])
        replies = await engine.async_generate([PROMPT, PROMPT], greedy())
        assert [reply["output_ids"] for reply in replies] == [alone["output_ids"]] * 2

    asyncio.run(main())


def test_an_async_stream_grows_to_the_reply_and_may_be_left(engine: Engine) -> None:
    async def main() -> None:
        whole = engine.generate(PROMPT, greedy())
        stream = await engine.async_generate(PROMPT, greedy(), stream=True)
        pieces = [piece async for piece in stream]
        assert pieces[-1]["output_ids"] == whole["output_ids"]
        left = await engine.async_generate(PROMPT, greedy(500), stream=True)
        assert isinstance(left, AsyncIterator)
        async for _ in left:
            break
        await left.aclose()  # type: ignore[attr-defined]
        wait_until_idle(engine, 2)

    asyncio.run(main())


def test_a_cancelled_task_frees_its_request(engine: Engine) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(engine.async_generate(PROMPT, greedy(500)))
        while not running(engine):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        wait_until_idle(engine, 2)

    asyncio.run(main())


def check_against_transformers(ids: list[int], reply: dict[str, Any], start: int, asked: list[int]) -> None:
    out, meta = reply["output_ids"], reply["meta_info"]
    expected = peer_logprobs(ids + out)
    prompt_entries = meta["input_token_logprobs"]
    assert [entry[1] for entry in prompt_entries] == ids[start:]
    for position, (value, token_id, text) in enumerate(prompt_entries, start):
        assert text is None
        if position == 0:
            assert value is None
        else:
            assert value == pytest.approx(float(expected[position - 1, token_id]), abs=TOLERANCE)
    for position, top in enumerate(meta["input_top_logprobs"], start):
        if position == 0:
            assert top is None
        else:
            for value, token_id, _ in top:
                assert value == pytest.approx(float(expected[position - 1, token_id]), abs=TOLERANCE)
            assert top[0][0] == pytest.approx(float(expected[position - 1].max()), abs=TOLERANCE)
    assert [entry[1] for entry in meta["output_token_logprobs"]] == out
    for offset, (value, token_id, _) in enumerate(meta["output_token_logprobs"]):
        row = expected[len(ids) - 1 + offset]
        assert value == pytest.approx(float(row[token_id]), abs=TOLERANCE)
        best = row.topk(3).values.tolist()
        assert [e[0] for e in meta["output_top_logprobs"][offset]] == pytest.approx(best, abs=TOLERANCE)
        assert [e[1] for e in meta["output_token_ids_logprobs"][offset]] == asked
        for asked_value, asked_id, _ in meta["output_token_ids_logprobs"][offset]:
            assert asked_value == pytest.approx(float(row[asked_id]), abs=TOLERANCE)


def test_logprobs_are_those_of_transformers_also_on_a_cached_prompt(engine: Engine) -> None:
    """C09: a cached prompt has its log-probabilities from any `start_len` on, and so have overlapping prompts."""
    ids = engine.tokenizer.encode(PARAGRAPH, parse_special=False)[:60]
    asked = [198, 30]

    def ask(prompt: list[int], start: int = 0) -> dict[str, Any]:
        return engine.generate(
            input_ids=prompt,
            sampling_params=greedy(2),
            return_logprob=True,
            logprob_start_len=start,
            top_logprobs_num=3,
            token_ids_logprob=asked,
        )

    engine.flush_cache()
    cold, warm, tail = ask(ids), ask(ids), ask(ids, 50)
    for reply, start in ((cold, 0), (warm, 0), (tail, 50)):
        check_against_transformers(ids, reply, start, asked)
    assert cold["meta_info"]["cached_tokens"] == 0
    assert tail["meta_info"]["cached_tokens"] >= 48
    both = [[*ids, 5, 6, 7], [*ids, 300, 301]]
    for order in ((0, 1), (1, 0)):
        engine.flush_cache()
        for index in order:
            check_against_transformers(both[index], ask(both[index]), 0, asked)


def test_output_logprobs_are_the_models_own_whatever_the_sampling(engine: Engine) -> None:
    """They come before temperature, penalties and constraint; entries carry the text where it was asked for."""
    ids = engine.tokenizer.encode(PROMPT, parse_special=False)
    params = {
        "temperature": 1.5,
        "top_k": 50,
        "max_new_tokens": 5,
        "ignore_eos": True,
        "seed": 1,
        "frequency_penalty": 1,
    }
    reply = engine.generate(input_ids=ids, sampling_params=params, return_logprob=True, return_text_in_logprobs=True)
    meta = reply["meta_info"]
    assert "input_token_logprobs" not in meta
    expected = peer_logprobs(ids + reply["output_ids"])
    for offset, (value, token_id, text) in enumerate(meta["output_token_logprobs"]):
        assert value == pytest.approx(float(expected[len(ids) - 1 + offset, token_id]), abs=TOLERANCE)
        assert text == engine.tokenizer.token_bytes[token_id].decode("utf-8", "replace")


def test_abort_ends_a_request_by_its_id_with_what_it_had(engine: Engine) -> None:
    engine.abort("nobody")
    stream = engine.generate(PROMPT, greedy(500), stream=True, rid="mine")
    first = next(stream)
    assert first["meta_info"]["id"] == "mine"
    engine.abort("mine")
    *_, last = stream
    assert last["meta_info"]["finish_reason"]["type"] == "abort"
    assert last["text"].startswith(first["text"])
    assert len(last["output_ids"]) < 500
    assert running(engine) == 0


def test_an_id_in_use_is_refused_and_its_owner_goes_on(engine: Engine) -> None:
    stream = engine.generate(PROMPT, greedy(12), stream=True, rid="mine")
    next(stream)
    with pytest.raises(RequestError, match=r"\['mine'\] is in use"):
        engine.generate([PROMPT, PROMPT], greedy(), rid=["other", "mine"])
    with pytest.raises(RequestError, match="an id twice"):
        engine.generate([PROMPT, PROMPT], greedy(), rid=["other", "other"])
    assert len(list(stream)[-1]["output_ids"]) == 12
    assert engine.generate(PROMPT, greedy(1), rid="mine")["meta_info"]["id"] == "mine"


def test_flush_forgets_the_cache_but_not_under_a_running_request(engine: Engine) -> None:
    engine.generate(PARAGRAPH, greedy(1))
    assert engine.generate(PARAGRAPH, greedy(1))["meta_info"]["cached_tokens"] > 0
    assert engine.flush_cache() is True
    assert engine.generate(PARAGRAPH, greedy(1))["meta_info"]["cached_tokens"] == 0
    stream = engine.generate(PROMPT, greedy(100), stream=True)
    next(stream)
    assert engine.flush_cache() is False
    stream.close()  # type: ignore[attr-defined]
    wait_until_idle(engine, 2)
    kv = engine.get_server_info()["kv"]
    assert kv["free_pages"] + kv["evictable_pages"] == kv["total_pages"]
    assert engine.flush_cache() is True
    kv = engine.get_server_info()["kv"]
    assert kv["free_pages"] == kv["total_pages"]


def test_the_server_info_has_the_configuration_and_the_counters(engine: Engine) -> None:
    before = engine.get_server_info()
    engine.generate("Something that no other test has asked", greedy(3))
    after = engine.get_server_info()
    assert after["output_tokens"] - before["output_tokens"] == 3
    assert after["runner"]["sampled"] - before["runner"]["sampled"] == 3
    assert (after["page_size"], after["max_total_tokens"], after["num_threads"]) == (16, 4096, 1)
    assert Path(after["model_path"]).suffix == ".gguf"
    assert after["programs"] == 0


def test_zero_new_tokens_score_the_prompt(engine: Engine) -> None:
    reply = engine.generate(PROMPT, greedy(0), return_logprob=True, logprob_start_len=0)
    assert (reply["text"], reply["output_ids"]) == ("", [])
    assert reply["meta_info"]["finish_reason"] == {"type": "length"}
    assert reply["meta_info"]["completion_tokens"] == 0
    assert len(reply["meta_info"]["input_token_logprobs"]) == 5


def test_a_bad_request_in_a_list_harms_no_other(engine: Engine) -> None:
    """What shows only when it runs is told in its own reply; alone it is raised."""
    alone = engine.generate(PROMPT, greedy())
    bad = [greedy(regex="(unclosed"), greedy(json_schema='{"type": "strin"}'), greedy(ebnf="root ::= nowhere")]
    replies = engine.generate([PROMPT] * 5, [greedy(), bad[0], greedy(), bad[1], bad[2]])
    assert [replies[i]["output_ids"] for i in (0, 2)] == [alone["output_ids"]] * 2
    reasons = [replies[i]["meta_info"]["finish_reason"] for i in (1, 3, 4)]
    assert [reason["type"] for reason in reasons] == ["abort"] * 3
    for reason, word in zip(reasons, ("unclosed", "strin", "nowhere"), strict=True):
        assert word in reason["message"]
    with pytest.raises(GrammarError, match="unclosed"):
        engine.generate(PROMPT, bad[0])
    with pytest.raises(GrammarError, match=r"json_schema of a request: .*strin"):
        engine.generate(PROMPT, bad[1])
    assert running(engine) == 0


def test_a_schema_holds_the_text(engine: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"enum": ["Paris", "Rome"]},
            "year": {"type": "integer", "minimum": 1900, "maximum": 2100},
        },
        "required": ["city", "year"],
        "additionalProperties": False,
    }
    reply = engine.generate("The capital of France as JSON: ", greedy(64, json_schema=json.dumps(schema)))
    value = json.loads(reply["text"])
    assert list(value) == ["city", "year"]
    assert value["city"] in ("Paris", "Rome")
    assert 1900 <= value["year"] <= 2100
    assert reply["meta_info"]["finish_reason"]["type"] == "stop"
    listed = engine.generate("Say it: ", greedy(16, ebnf='root ::= ("ab" | "cd"){2} "!"'))
    assert re.fullmatch("(ab|cd){2}!", listed["text"])


def test_a_wrong_argument_starts_nothing(engine: Engine) -> None:
    before = engine.get_server_info()["kv"]["admissions"]
    with pytest.raises(RequestError, match="top_p=7"):
        engine.generate([PROMPT, PROMPT], [greedy(), greedy(top_p=7)])
    with pytest.raises(ContextLengthError, match="shorten it"):
        engine.generate(input_ids=[[5], [5] * 5000], sampling_params=greedy())
    with pytest.raises(RequestError, match="lone surrogates"):
        engine.generate("\ud800", greedy())
    with pytest.raises(RequestError, match="exactly one of prompt and input_ids"):
        engine.generate()
    assert engine.get_server_info()["kv"]["admissions"] == before


@pytest.mark.parametrize("name", ["image_data", "lora_path", "input_embeds"])
def test_an_input_that_is_not_built_is_refused_by_its_name(engine: Engine, name: str) -> None:
    with pytest.raises(UnsupportedError, match=name):
        engine.generate(PROMPT, greedy(), **{name: "x"})
    assert engine.generate(PROMPT, greedy(1), **{name: None})["output_ids"]
    with pytest.raises(TypeError, match="wrong_name"):
        engine.generate(PROMPT, greedy(), wrong_name=1)


def test_a_seeded_request_gives_the_same_tokens_in_any_company(engine: Engine) -> None:
    """C33: beside an unseeded one, beside one of another seed, alone, in a batch of eight, and with a cached prompt."""
    params = {"temperature": 0.8, "max_new_tokens": 8, "ignore_eos": True}
    mine, other = params | {"seed": 42}, params | {"seed": 7}
    engine.flush_cache()
    runs = [engine.generate(PROMPT, mine), engine.generate(PROMPT, mine)]
    runs += [engine.generate([PROMPT, PARAGRAPH], [mine, params])[0] for _ in range(2)]
    runs.append(engine.generate([PROMPT, PROMPT], [mine, other])[0])
    runs.append(engine.generate([PARAGRAPH] * 7 + [PROMPT], [params] * 7 + [mine])[7])
    assert len({tuple(run["output_ids"]) for run in runs}) == 1
    assert engine.generate(PROMPT, other)["output_ids"] != runs[0]["output_ids"]


def test_free_and_constrained_rows_share_a_batch(engine: Engine, reference: Reference) -> None:
    """C67: with staggered arrival and leaving, cold and cached, free rows give what they give alone, and so do the others."""
    patterns = ["(yes|no), [a-z]{2,6}", "[0-9]{4}-[0-9]{2}", "[A-Z][a-z]+ \\([a-z ]{3,8}\\)"]
    prompt = engine.tokenizer.encode(PARAGRAPH, parse_special=False)[:40]
    solo = [engine.generate(input_ids=prompt, sampling_params=greedy(10, regex=p, ignore_eos=False)) for p in patterns]
    for pattern, reply in zip(patterns, solo, strict=True):
        assert re.fullmatch(pattern, reply["text"]) or reply["meta_info"]["finish_reason"]["type"] == "length"
    engine.flush_cache()
    for _ in range(2):
        results: dict[str, Any] = {}

        def work(name: str, ids: list[int], params: dict[str, Any], results: dict[str, Any] = results) -> None:
            results[name] = engine.generate(input_ids=ids, sampling_params=params)

        jobs = [(f"free{i}", ids, reference.params[i]) for i, ids in enumerate(reference.prompts)]
        jobs += [(f"held{i}", prompt, greedy(10, regex=p, ignore_eos=False)) for i, p in enumerate(patterns)]
        order = [jobs[i] for i in (0, 4, 1, 5, 2, 6, 3)]
        threads = [threading.Thread(target=work, args=job) for job in order]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        reference.check([results[f"free{i}"]["output_ids"] for i in range(4)])
        for i, reply in enumerate(solo):
            assert results[f"held{i}"]["text"] == reply["text"]


def test_ctrl_c_frees_the_request_and_the_engine_serves_the_next_call(engine: Engine) -> None:
    main = threading.main_thread()
    assert threading.current_thread() is main

    def interrupt() -> None:
        while not running(engine):
            pass
        signal.pthread_kill(main.ident or 0, signal.SIGINT)

    for call in (
        lambda: engine.generate(PROMPT, greedy(500)),
        lambda: engine.generate([PROMPT, PARAGRAPH], greedy(500)),
        lambda: list(engine.generate(PROMPT, greedy(500), stream=True)),
    ):
        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            call()
        wait_until_idle(engine, 2)
        helper.join()
    assert engine.generate(PROMPT, greedy(1))["output_ids"]


def test_two_engines_live_side_by_side(engine: Engine) -> None:
    """And `random_seed` makes the unseeded draws of an engine repeat."""
    alone = engine.generate(PROMPT, greedy())["output_ids"]
    drawn: list[list[str]] = []
    for page_size in (4, 16):
        with running_engine(page_size=page_size, random_seed=3) as other:
            drawn.append([other.generate(PROMPT, {"max_new_tokens": 4, "temperature": 1.0})["text"] for _ in range(2)])
            results: list[Any] = []
            thread = threading.Thread(target=lambda: results.append(other.generate(PROMPT, greedy())))  # noqa: B023
            thread.start()
            assert engine.generate(PROMPT, greedy())["output_ids"] == alone
            thread.join()
            assert results[0]["output_ids"] == alone
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]
    assert engine.generate(PROMPT, greedy())["output_ids"] == alone


def test_after_shutdown_every_use_says_so(engine: Engine) -> None:
    with running_engine() as own:
        stream = own.generate(PROMPT, greedy(200), stream=True)
        next(stream)
        own.shutdown()
        with pytest.raises(EngineStoppedError, match="shut down"):
            list(stream)
        own.shutdown()
        for use in (
            lambda: own.generate(PROMPT, greedy()),
            lambda: own.generate([PROMPT], greedy()),
            lambda: asyncio.run(own.async_generate(PROMPT, greedy())),  # type: ignore[arg-type]
            own.flush_cache,
            own.get_server_info,
            lambda: own.abort("x"),
            lambda: own.open_program(print),
        ):
            with pytest.raises(EngineStoppedError, match="the engine was shut down"):
                use()


def test_a_shutdown_ends_a_list_call_with_an_error(engine: Engine) -> None:
    """A list's single failures are told in its replies, but the end of the engine is no single failure."""
    with running_engine() as own:

        def shutdown() -> None:
            while not running(own):
                pass
            own.shutdown()

        helper = threading.Thread(target=shutdown)
        helper.start()
        with pytest.raises(EngineStoppedError):
            own.generate([PROMPT, PROMPT], greedy(500))
        helper.join()


def test_an_engine_that_is_forgotten_ends_its_thread(engine: Engine) -> None:
    before = set(threading.enumerate())
    with running_engine() as own:
        (thread,) = [t for t in set(threading.enumerate()) - before if t.name == "sglang-lite-engine"]
        end = own.shutdown
        own.shutdown = lambda: None  # type: ignore[method-assign] - leaving the block must not be what ends it
        del own, end
    gc.collect()
    assert not thread.is_alive()


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")
import sglang_lite as sgl
from sglang_lite.request_tree import TextOp
engine = sgl.Engine(max_total_tokens=256, num_threads=1)
stream = engine.generate("Hello", {"max_new_tokens": 100}, stream=True)
next(stream)
program = engine.open_program(lambda event: print("event", type(event).__name__, type(event.error).__name__))
pid = os.fork()
if pid == 0:
    for use in (lambda: engine.generate("Hello"), lambda: next(stream), engine.flush_cache, engine.get_server_info):
        try:
            use()
        except sgl.errors.EngineStoppedError as error:
            print("refused", "fork()" in str(error))
    program.append([TextOp(1, 0, "a")])
    engine.shutdown()
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
stream.close()
print("parent", len(engine.generate("Hello", {"max_new_tokens": 2, "ignore_eos": True})["output_ids"]))
"""
UNFINISHED = """
import asyncio
import sglang_lite as sgl
engine = sgl.Engine(max_total_tokens=256, num_threads=1)
stream = engine.generate("Hello", {"max_new_tokens": 200, "ignore_eos": True}, stream=True)
next(stream)
@sgl.function
def talk(s):
    s += "Hello" + sgl.gen("x", max_tokens=200, ignore_eos=True)
state = talk.run(backend=engine, stream=True)
next(state.text_iter())
print("end of script")
"""


def run_script(code: str, folder: Path) -> list[str]:
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=240, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    return done.stdout.splitlines()


def test_a_forked_process_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    assert run_script(FORK, tmp_path) == ["refused True"] * 4 + ["event OpFailed EngineStoppedError", "parent 2"]


def test_a_script_may_end_with_open_streams(tmp_path: Path) -> None:
    assert run_script(UNFINISHED, tmp_path) == ["end of script"]


def test_the_samples_of_one_gen_compute_their_prompt_once(engine: Engine) -> None:
    """A program's `gen(n=3)`: one branch, three requests, one prefill."""

    @sgl.function
    def program(s: Any) -> None:
        s += PARAGRAPH + sgl.gen("x", n=3, max_tokens=4, temperature=0.8, ignore_eos=True)

    engine.flush_cache()
    state = program.run(backend=engine, options=sgl.RunOptions(seed=5))
    samples = state.get_meta_info("x")["samples"]
    assert len(state["x"]) == len(samples) == 3
    assert state.text() == PARAGRAPH + state["x"][0]
    prompt = samples[0]["prompt_tokens"]
    computed = sum(sample["computed_tokens"] for sample in samples)
    assert computed <= prompt + 2 * engine.config.page_size, f"{computed} computed for three samples of {prompt} tokens"
