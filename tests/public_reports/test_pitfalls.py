"""The 22 pitfalls of SGLang's interpreter, each with the tests that hold it here; those that need a model are below."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import sglang_lite as sgl
from sglang_lite.lang.ir import REGEX_INT
from sglang_lite.runtime.engine.engine import Engine
from tests.public_reports.server_reports import SERVER
from tests.support.engine_fixture import peer_logprobs

TESTS = Path(__file__).parents[1]

PITFALLS: dict[str, list[str]] = {
    "1 the fork hint is skipped": ["lang/test_pitfalls.py:test_1_and_2_a_fork_sends_and_waits_for_nothing"],
    "2 a fork is a barrier": ["lang/test_pitfalls.py:test_1_and_2_a_fork_sends_and_waits_for_nothing"],
    "3 errors are swallowed": [
        "lang/test_pitfalls.py:test_3_a_failed_op_raises_its_own_error_at_the_read_and_at_the_end",
        "lang/test_pitfalls.py:test_3_in_a_batch_errors_stay_with_their_row",
    ],
    "4 a deadlock after an error": [
        "lang/test_pitfalls.py:test_4_nothing_hangs_after_an_error",
        "lang/test_pitfalls.py:test_4_a_state_of_an_ended_run_refuses_to_be_appended_to",
    ],
    "5 a failed fork child is ignored": [
        "lang/test_pitfalls.py:test_5_a_failed_fork_child_is_a_failed_element_of_the_join"
    ],
    "6 a second round of fork and join loses data": [
        "lang/test_pitfalls.py:test_6_a_second_fork_and_join_round_loses_nothing"
    ],
    "7 the process never exits": ["lang/test_pitfalls.py:test_7_the_process_ends_whatever_is_kept_or_stuck"],
    "8 threads": [
        "lang/test_pitfalls.py:test_8_no_threads_for_states_forks_and_pending_ops",
        "lang/test_pitfalls.py:test_8_threads_grow_to_the_rows_that_wait_and_no_further",
    ],
    "9 pre-cache tracing runs user code": [
        "lang/test_pitfalls.py:test_9_a_batch_runs_each_body_once_and_only_on_real_arguments",
        "lang/test_tracer.py:test_a_question_leaves_the_tree_open_and_says_why",
    ],
    "10 the tracer is incomplete": [
        "lang/test_pitfalls.py:test_10_a_trace_knows_joins_turns_and_scopes",
        "lang/test_tracer.py:test_nested_programs_have_trees_of_their_own",
        "public_reports/test_pitfalls.py:test_10_a_nested_call_by_position_is_traced",
    ],
    "11 text is tokenised again": [
        "runtime/executor/test_program.py:test_the_next_gen_continues_from_the_generated_ids",
        "runtime/executor/test_program.py:test_a_begin_token_comes_once_and_only_before_plain_text",
        "public_reports/test_pitfalls.py:test_11_generated_ids_are_kept_where_their_text_has_other_tokens",
        "public_reports/test_prefix_cache.py:test_a_second_turn_reuses_what_the_first_generated",
    ],
    "12 select is aligned by guess": [
        "public_reports/test_language.py:test_choices_are_scored_as_the_model_alone_scores_them",
        "public_reports/test_pitfalls.py:test_12_a_select_scores_its_own_tokens_whatever_the_prompt_ends_with",
        "public_reports/test_pitfalls.py:test_12_a_certain_token_counts",
    ],
    "13 objects of the caller are changed": [
        "lang/test_pitfalls.py:test_13_what_the_user_passes_in_is_never_changed",
        "lang/backends/hosted/test_anthropic_api.py:test_messages_with_the_system_text_apart_in_every_call",
    ],
    "14 dtype with a stop": [
        "lang/test_pitfalls.py:test_14_dtype_goes_with_any_form_of_stop",
        "public_reports/test_pitfalls.py:test_14_what_a_run_is_given_reaches_every_gen",
    ],
    "15 separate_reasoning cuts turns, and hangs": [
        "lang/test_reasoning.py:test_the_turn_keeps_its_end_and_the_next_prompt_has_no_thinking",
        "lang/test_reasoning.py:test_both_halves_stream_as_they_come",
        "lang/test_reasoning.py:test_every_sample_is_split",
    ],
    "16 streaming": [
        "lang/test_pitfalls.py:test_16_a_streaming_reader_meets_the_error_of_the_body",
        "lang/test_pitfalls.py:test_16_a_streaming_reader_meets_the_error_of_an_op_after_its_text",
        "lang/test_pitfalls.py:test_16_every_occurrence_of_a_name_is_streamed",
        "lang/test_pitfalls.py:test_16_an_async_reader_never_blocks_the_loop",
        "lang/test_streaming.py:test_async_without_streaming_is_one_piece",
    ],
    "17 a fork loses state": [
        "lang/test_pitfalls.py:test_17_a_fork_keeps_names_meta_info_turns_and_the_open_role",
        "lang/test_sgl_function.py:test_a_binding_keeps_everything_else",
    ],
    "18 speculation": [
        "lang/backends/hosted/test_speculation.py:test_rows_side_by_side_do_not_mix",
        "lang/backends/hosted/test_speculation.py:test_a_turn_that_does_not_fit_is_asked_for_again_and_then_an_error",
        "lang/backends/hosted/test_speculation.py:test_limits_are_counted_by_the_model_and_not_in_characters",
        "lang/backends/hosted/test_openai_api.py:test_one_field_says_the_limit",
    ],
    "19 concate_and_append calls a route that is gone": [
        "lang/test_group.py:test_concat_appends_what_each_child_added_in_order",
        "runtime/executor/test_program.py:test_a_concat_join_appends_what_the_children_added",
        "public_reports/test_pitfalls.py:test_19_texts_of_forks_are_joined_on_the_model",
    ],
    "20 no cancel, no timeout": [
        "lang/test_pitfalls.py:test_20_what_is_left_is_cancelled",
        "lang/test_pitfalls.py:test_20_a_state_can_be_cancelled_from_outside",
        "lang/test_deadlines.py:*",
    ],
    "21 names race, unnamed gens share one": ["lang/test_pitfalls.py:test_21_unnamed_gens_do_not_share_a_name"],
    "22 names of run hide those of programs": [
        "lang/test_pitfalls.py:test_22_options_are_in_one_object_and_a_parameter_of_that_name_is_the_users",
        "lang/test_pitfalls.py:test_22_a_parameter_that_run_hides_is_explained",
    ],
}

REPORTS: dict[str, list[str]] = {
    "C01 choices by length": [
        "public_reports/test_language.py:test_choices_are_scored_as_the_model_alone_scores_them",
        "lang/test_public_reports.py:test_select_appends_exactly_the_choice_and_nothing_more",
    ],
    "C03 a fork before any text": [
        "public_reports/test_language.py:test_a_fork_before_any_text_is_as_good_as_any_other",
        "public_reports/test_language.py:test_an_empty_prompt_is_refused_and_the_engine_goes_on",
        "lang/test_public_reports.py:test_a_fork_before_any_text_works",
        "runtime/server/test_native.py:*",
    ],
    "C05 choices as patterns": [
        "public_reports/test_language.py:test_choices_are_texts_and_no_patterns",
        "lang/test_public_reports.py:test_choices_are_texts_not_patterns",
    ],
    "C07 the empty choice": [
        "public_reports/test_language.py:test_the_empty_choice_is_a_choice",
        "lang/test_public_reports.py:test_the_empty_choice_is_a_choice",
        "lang/test_public_reports.py:test_no_choices_are_a_value_error_before_running",
    ],
    "C17 in a program: whole characters": ["lang/test_streaming.py:test_emoji_and_marks_come_whole"],
    "C23 in a program: no part of a stop": [
        "public_reports/test_stop.py:test_no_part_of_a_stop_string_is_streamed_by_a_program",
        "lang/test_public_reports.py:test_no_piece_of_a_stop_string_is_seen",
    ],
    "C41 in a program: the ids of the chat route": [
        "runtime/server/test_real_model.py:test_the_chat_prompt_is_that_of_the_models_template"
    ],
    "C69 in a program: the limit ends a constraint": [
        "public_reports/test_language.py:test_the_token_limit_ends_a_constrained_generation"
    ],
    "C71 in a program: a prompt that ends with a space": [
        "public_reports/test_language.py:test_a_constraint_holds_the_generated_text_alone"
    ],
    "C85 in a program: a second batch": ["public_reports/test_language.py:test_more_requests_than_may_run_all_finish_in_order"],
}  # fmt: skip


@pytest.mark.parametrize("table", [PITFALLS, REPORTS, SERVER], ids=["pitfalls", "reports", "server"])
def test_every_entry_has_tests_that_are_there(table: dict[str, list[str]]) -> None:
    missing: list[str] = []
    for names in table.values():
        for name in names:
            file, _, function = name.partition(":")
            path = TESTS / file
            there = {
                node.name
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            if not any(one.startswith("test_") if function == "*" else one == function for one in there):
                missing.append(name)
    assert missing == []


def test_all_pitfalls_are_in_the_table() -> None:
    assert [int(name.split()[0]) for name in PITFALLS] == list(range(1, 23))


def test_10_a_nested_call_by_position_is_traced() -> None:
    @sgl.function
    def inner(s: Any, topic: str, count: int = 2) -> None:
        s += topic + sgl.gen("x")

    @sgl.function
    def outer(s: Any, topic: str) -> None:
        s += "About " + topic
        inner(topic, 3)
        with s.copy() as t:
            t += sgl.gen("y")

    assert outer.trace().is_closed
    assert "gen" in str(outer.trace())


def test_14_what_a_run_is_given_reaches_every_gen() -> None:
    """A run's lists and the regex of a dtype are in the parameters of each gen, as they were given."""

    @sgl.function
    def f(s: Any) -> None:
        s += "t" + sgl.gen("a", dtype=int) + sgl.gen("b", regex="x*")

    backend = sgl.ScriptedBackend({"a": "1", "b": "x"})
    f.run(backend=backend, stop=["E"], stop_token_ids=[3], stop_regex=["q+"], return_logprob=True, logprob_start_len=0)
    first, second = (call.params for call in backend.calls)
    assert first is not None
    assert second is not None
    assert (first.stop, first.stop_token_ids, first.stop_regex) == (("E", " ", "\n"), (3,), ("q+",))
    assert (first.regex, second.regex, second.stop) == (REGEX_INT, "x*", ("E",))


@pytest.mark.model
def test_11_generated_ids_are_kept_where_their_text_has_other_tokens(engine: Engine) -> None:
    """A gen that is held to one letter a token: its text alone would be tokenised otherwise, and matched to no end."""
    letters = [engine.tokenizer.encode(letter, parse_special=False)[0] for letter in "Paris"]
    assert engine.tokenizer.encode("Paris", parse_special=False) != letters

    @sgl.function
    def f(s: Any) -> None:
        s += "City:"
        for number in range(5):
            s += sgl.gen(f"l{number}", regex="Paris"[number], max_tokens=1, temperature=0)
        s += sgl.gen("next", max_tokens=1, temperature=0) + " of" + sgl.gen("last", max_tokens=1, temperature=0)

    state = f.run(backend=engine)
    assert state.text().startswith("City:Paris")
    prompt = len(engine.tokenizer.encode("City:", parse_special=True))
    meta = state.get_meta_info("next")
    assert meta["prompt_tokens"] == prompt + 5
    assert meta["cached_tokens"] == prompt + 4, "all but the last token were computed before"
    assert state.get_meta_info("last")["cached_tokens"] >= prompt + 5


PROMPTS = ["A", "The", "yes yes", "no no no", "Paris Paris", "It is", "It is ", "x\n\n", "a,"]


@pytest.mark.model
@pytest.mark.parametrize("prompt", PROMPTS)
def test_12_a_select_scores_its_own_tokens_whatever_the_prompt_ends_with(engine: Engine, prompt: str) -> None:
    """Prompts of one token, with an end that repeats itself or a choice: scores are transformers', in one request."""

    @sgl.function
    def f(s: Any) -> None:
        s += prompt + sgl.select("c", [" yes", " no no", " Paris", ""])

    state = f.run(backend=engine)
    before = engine.tokenizer.encode(prompt, parse_special=True)
    meta = state.get_meta_info("c")
    expected: list[float] = []
    for choice in (" yes", " no no", " Paris"):
        ids = engine.tokenizer.encode(choice, parse_special=False)
        rows = peer_logprobs(before + ids)
        scores = [float(rows[len(before) + i - 1, token]) for i, token in enumerate(ids)]
        expected.append(sum(scores) / len(scores))
    assert meta["normalized_prompt_logprobs"][:3] == pytest.approx(expected, abs=1e-3)


def test_12_a_certain_token_counts() -> None:
    """A log-probability of exactly 0.0 is a token like any other: it is in the mean, and an empty row divides nothing."""
    from sglang_lite.choice_scoring import mean, token_length_normalized

    assert mean([0.0, -2.0]) == -1.0
    assert mean([0.0]) == mean([]) == 0.0
    assert token_length_normalized([[-1.0], [0.0, -1.0]]).index == 1


@pytest.mark.model
def test_19_texts_of_forks_are_joined_on_the_model(engine: Engine) -> None:
    @sgl.function
    def f(s: Any) -> None:
        s += "Colours: "
        forks = s.fork(3)
        forks += lambda i: f"[{i}]"
        forks += sgl.gen("x", regex="[a-z]{3}", temperature=0)
        forks.join("concate_and_append")
        s += "!" + sgl.gen("end", max_tokens=2, temperature=0)

    state = f.run(backend=engine)
    joined = "".join(f"[{i}]{word}" for i, word in enumerate(part[:3] for part in state.text().split("]")[1:]))
    assert state.text() == f"Colours: {joined}!" + state["end"]
