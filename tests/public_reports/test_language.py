"""Public reports about programs, constraints and batches, as tests of their whole kind, on the embedded model."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.errors import ContextLengthError, ExecutionError, KvOutOfMemoryError, RequestError
from sglang_lite.grammar import GrammarCompiler, TokenVocab
from sglang_lite.lang.choices import ChoicesSamplingMethod
from sglang_lite.runtime.engine.engine import Engine
from tests.support.engine_fixture import Reference, peer_logprobs, running_engine

pytestmark = pytest.mark.model

TOLERANCE = 1e-3
CAPITAL = "The capital of France is"
GREEDY = {"temperature": 0.0, "max_new_tokens": 4, "ignore_eos": True}


@pytest.fixture(scope="module")
def compiler(engine: Engine) -> GrammarCompiler:
    return GrammarCompiler(TokenVocab.from_tokenizer(engine.tokenizer))


def peer_scores(before: list[int], choice: list[int]) -> list[float]:
    """Log-probabilities of the choice's tokens after `before`, by transformers; without context the first counts 0."""
    rows = peer_logprobs(before + choice)
    scores = [float(rows[len(before) + i - 1, token]) for i, token in enumerate(choice) if len(before) + i]
    return scores if before else [0.0, *scores]


METHODS: dict[str, ChoicesSamplingMethod] = {
    "mean": sgl.token_length_normalized,
    "greedy": sgl.greedy_token_selection,
    "unconditional": sgl.unconditional_likelihood_normalized,
}


class OwnMethod(type(sgl.unconditional_likelihood_normalized)):
    """The same by a class that the backend does not know: the program decides."""


@pytest.mark.parametrize(
    "choices", [(" Paris", " Antidisestablishmentarianism"), (" a city", " Paris", " London", " a")]
)
@pytest.mark.parametrize("name", [*METHODS, "own"])
def test_choices_are_scored_as_the_model_alone_scores_them(engine: Engine, name: str, choices: tuple[str, ...]) -> None:
    """C01: picking by average log-probability favoured long words; each method's scores and pick are the reference's."""
    method = OwnMethod() if name == "own" else METHODS[name]

    @sgl.function
    def ask(s: Any) -> None:
        s += CAPITAL
        s += sgl.gen("a", choices=choices, choices_method=method)

    state = ask.run(backend=engine)
    meta = state.get_meta_info("a")
    prompt = engine.tokenizer.encode(CAPITAL, parse_special=False)
    ids = [engine.tokenizer.encode(choice, parse_special=False) for choice in choices]
    rows = [peer_scores(prompt, choice) for choice in ids]
    means = [sum(row) / len(row) for row in rows]
    assert meta["normalized_prompt_logprobs"] == pytest.approx(means, abs=TOLERANCE)
    for row, expected, choice in zip(meta["input_token_logprobs"], rows, ids, strict=True):
        assert [entry[0] for entry in row] == pytest.approx(expected, abs=TOLERANCE)
        assert [entry[1] for entry in row] == choice
    if name == "mean":
        pick = means.index(max(means))
    elif name == "greedy":
        width = max(map(len, rows))
        matrix = [row + [mean] * (width - len(row)) for row, mean in zip(rows, means, strict=True)]
        for row, expected in zip(meta["greedy_logprob_matrix"], matrix, strict=True):
            assert row == pytest.approx(expected, abs=TOLERANCE)
        pick = matrix.index(max(matrix))  # lists compare place by place
        assert pick == max(range(len(rows)), key=lambda i: rows[i][0]) or len({row[0] for row in rows}) < len(rows)
    else:
        alone = [peer_scores([], choice) for choice in ids]
        gains = [sum(a - b for a, b in zip(r, u, strict=True)) / len(r) for r, u in zip(rows, alone, strict=True)]
        assert meta["normalized_unconditional_prompt_logprobs"] == pytest.approx(gains, abs=TOLERANCE)
        for row, expected in zip(meta["unconditional_token_logprobs"], alone, strict=True):
            assert [entry[0] or 0.0 for entry in row] == pytest.approx(expected, abs=TOLERANCE)
        pick = gains.index(max(gains))
    assert state["a"] == choices[pick]
    assert state.text() == CAPITAL + choices[pick]


@pytest.mark.parametrize("first", [None, ""])
def test_a_fork_before_any_text_is_as_good_as_any_other(engine: Engine, first: str | None) -> None:
    """C03: forking before any text had been added sent an empty request that killed the backend."""
    texts: list[str] = []

    @sgl.function
    def fork_first(s: Any) -> None:
        if first is not None:
            s += first
        forks = s.fork(2)
        for number, fork in enumerate(forks):
            fork += f"Item {number}:"
            fork += sgl.gen("o", max_tokens=4, temperature=0.0)
        texts.extend(fork.text() for fork in forks)
        assert s.text() == ""
        s["all"] = [fork["o"] for fork in forks]
        forks.join()

    state = fork_first.run(backend=engine)
    solo = [
        engine.generate(f"Item {number}:", {"temperature": 0.0, "max_new_tokens": 4})["text"] for number in range(2)
    ]
    assert state["all"] == solo
    assert texts == [f"Item {number}:{text}" for number, text in enumerate(solo)]
    assert state.text() == ""


def test_an_empty_prompt_is_refused_and_the_engine_goes_on(engine: Engine) -> None:
    """C03: here it is a `RequestError`; in a program a gen on an empty state is one."""
    before = engine.generate(CAPITAL, GREEDY)["text"]
    with pytest.raises(RequestError, match="no tokens"):
        engine.generate("", {"max_new_tokens": 0})

    @sgl.function
    def empty(s: Any) -> None:
        s += sgl.gen("x", max_tokens=4)

    with pytest.raises(RequestError, match="empty branch"):
        empty.run(backend=engine)
    assert engine.generate(CAPITAL, GREEDY)["text"] == before


NAMES = ["Dr. Smith", "a+b", "C:\\dir", "(x|y)", "[1]", 'say "hi"']


def test_choices_are_texts_and_no_patterns(engine: Engine, compiler: GrammarCompiler) -> None:
    """C05: choices were pasted into a regular expression unescaped, so the dot in a title matched any letter."""
    hot = {"temperature": 1.5, "max_new_tokens": 24}
    for constraint in ({"choices": NAMES}, {"regex": "|".join(map(re.escape, NAMES))}):
        params = [hot | constraint | {"seed": seed} for seed in range(50)]
        texts = [reply["text"] for reply in engine.generate(["My choice: "] * 50, params)]
        assert set(texts) <= set(NAMES)
        assert len(set(texts)) > 1
    for grammar in (compiler.compile_choices(NAMES), compiler.compile_regex("|".join(map(re.escape, NAMES)))):
        assert all(grammar.accepts(name) for name in NAMES)
        assert not any(grammar.accepts(text) for text in ("Drx Smith", "x", "1", "C:dir", "aab", ""))

    @sgl.function
    def pick(s: Any) -> None:
        s += "My choice: " + sgl.gen("name", choices=NAMES)

    state = pick.run(backend=engine)
    assert state["name"] in NAMES
    assert state.text() == "My choice: " + state["name"]


@pytest.mark.parametrize("choices", [["PER", "ORG", ""], [""], ["", "", "x"]])
def test_the_empty_choice_is_a_choice(engine: Engine, choices: list[str]) -> None:
    """C07: a list with the empty string left the variable undefined when the empty option won."""

    @sgl.function
    def label(s: Any) -> None:
        s += "Word: the - label: "
        s += sgl.gen("lab", choices=choices)
        s += "."

    state = label.run(backend=engine)
    assert state["lab"] in choices
    assert state.text() == f"Word: the - label: {state['lab']}."
    with pytest.raises(ValueError, match="at least one"):
        sgl.gen("lab", choices=[])


@pytest.mark.parametrize("limit", [5, 1, 0])
def test_the_token_limit_ends_a_constrained_generation(engine: Engine, compiler: GrammarCompiler, limit: int) -> None:
    """C69: exactly so many tokens, reason `length`, and the text begins some text of the grammar."""
    for pattern in (r"([^\n]*\n){1,6}", r'\{"name": "[^"]{3,40}", "age": \d+\}'):
        reply = engine.generate("Poem:\n", {"temperature": 0.0, "max_new_tokens": limit, "regex": pattern})
        assert len(reply["output_ids"]) == reply["meta_info"]["completion_tokens"] == limit
        assert reply["meta_info"]["finish_reason"] == {"type": "length"}
        grammar = compiler.compile_regex(pattern)
        assert grammar.advance_bytes(grammar.start_state, reply["text"].encode()) >= 0

        @sgl.function
        def poem(s: Any, pattern: str = pattern) -> None:
            s += "Poem:\n" + sgl.gen("p", regex=pattern, max_tokens=limit, temperature=0.0)

        assert poem.run(backend=engine)["p"] == reply["text"]


@pytest.mark.parametrize("pattern", [r"[A-Z][a-z]+", r"\d{4}"])
@pytest.mark.parametrize("prompt", ["Answer: ", "Answer:", "x = [", '{"name": "'])
def test_a_constraint_holds_the_generated_text_alone(engine: Engine, prompt: str, pattern: str) -> None:
    """C71: prompt and answer fused into one token; the text alone matches, and the prompt's ids stay as they are."""
    plain, held = engine.generate([prompt] * 2, [GREEDY, {"temperature": 0.0, "max_new_tokens": 12, "regex": pattern}])
    assert held["meta_info"]["prompt_tokens"] == plain["meta_info"]["prompt_tokens"]
    assert re.fullmatch(pattern, held["text"]) or held["meta_info"]["finish_reason"] == {"type": "length"}
    assert re.fullmatch(pattern, held["text"][:4])

    @sgl.function
    def answer(s: Any) -> None:
        s += prompt
        s += sgl.gen("a", regex=pattern, max_tokens=12, temperature=0.0)

    state = answer.run(backend=engine)
    assert state["a"] == held["text"]
    assert state.get_meta_info("a")["prompt_tokens"] == held["meta_info"]["prompt_tokens"]


@pytest.fixture(scope="module")
def tiny() -> Iterator[Engine]:
    """A pool of 32 tokens under the model's whole context."""
    with running_engine(max_total_tokens=32) as engine:
        yield engine


def test_a_request_that_outgrows_the_pool_ends_alone(tiny: Engine) -> None:
    """C81: when one request alone outgrew the pool there was nothing left to evict and the server raised."""
    ids = tiny.tokenizer.encode(CAPITAL, parse_special=False)
    long = GREEDY | {"max_new_tokens": 250}
    with pytest.raises(KvOutOfMemoryError, match="the whole pool has 32 slots"):
        tiny.generate(input_ids=ids, sampling_params=long)
    (cut,) = tiny.generate(input_ids=[ids], sampling_params=long)
    assert "32 slots" in cut["meta_info"]["finish_reason"]["message"]
    assert len(cut["output_ids"]) == 32 - len(ids) + 1
    with pytest.raises(ContextLengthError, match="at most 31 fit"):
        tiny.generate(input_ids=[5] * 40, sampling_params=GREEDY)

    @sgl.function
    def talk(s: Any) -> None:
        s += CAPITAL + sgl.gen("x", max_tokens=250, ignore_eos=True)

    with pytest.raises(ExecutionError, match="32 slots"):
        talk.run(backend=tiny)
    kv = tiny.get_server_info()["kv"]
    assert kv["free_pages"] + kv["evictable_pages"] == kv["total_pages"]


def test_two_requests_that_do_not_fit_together_both_finish(tiny: Engine, engine: Engine) -> None:
    """C81: one is paused and goes on; both give what they give alone."""
    encode = engine.tokenizer.encode
    prompts = [encode(text, parse_special=False) for text in (CAPITAL, "Water is made of")]
    reference = Reference(engine, prompts, 20)
    replies = tiny.generate(input_ids=prompts, sampling_params=reference.params)
    reference.check([reply["output_ids"] for reply in replies])
    assert tiny.flush_cache()
    assert tiny.get_server_info()["kv"]["free_pages"] == 2


@sgl.function
def count(s: Any, word: str) -> None:
    s += f"One {word}, two" + sgl.gen("x", max_tokens=2, temperature=0.0)


def test_more_requests_than_may_run_all_finish_in_order(engine: Engine) -> None:
    """C85: a batch larger than the running limit, or a second batch after the first, hung for ever."""
    words = ["cat", "dog", "cow", "hen", "pig", "fox", "owl"]
    prompts = [engine.tokenizer.encode(f"One {word}, two", parse_special=False) for word in words]
    reference = Reference(engine, prompts, 2)
    with running_engine(max_running_requests=2) as small:
        for _ in range(2):
            replies = small.generate(input_ids=prompts, sampling_params=reference.params)
            reference.check([reply["output_ids"] for reply in replies])
        solo = [reply["text"] for reply in replies]
        for _ in range(2):
            states = count.run_batch([{"word": words[i % 7]} for i in range(20)], backend=small)
            assert [state["x"] for state in states] == [solo[i % 7] for i in range(20)]
        texts: dict[int, str] = {}

        def ask(number: int) -> None:
            texts[number] = small.generate(f"One {words[number % 7]}, two", GREEDY | {"max_new_tokens": 1})["text"]

        stream = small.generate(CAPITAL, GREEDY | {"max_new_tokens": 900}, stream=True, rid="endless")
        next(stream)  # type: ignore[call-overload]
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(64)]
        for thread in threads:
            thread.start()
        small.abort("endless")
        for thread in threads:
            thread.join()
        assert len(texts) == 64
        assert all(solo[number % 7].startswith(text) for number, text in texts.items())
        *_, last = stream
        assert last["meta_info"]["finish_reason"]["type"] == "abort"
