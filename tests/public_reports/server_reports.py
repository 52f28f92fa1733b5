"""Public reports about servers, each with the tests that hold it here; paths below `tests/`."""

from __future__ import annotations

_APP = "runtime/server/test_app.py"
_CHAT = "runtime/server/test_openai_chat.py"
_COMPLETIONS = "runtime/server/test_openai_completions.py"
_NATIVE = "runtime/server/test_native.py"
_RUN = "runtime/server/test_chat_run.py"
_OWN = "public_reports/test_server.py"

SERVER: dict[str, list[str]] = {
    "C17 characters cut over several tokens": [
        f"{_OWN}:test_characters_of_several_tokens_come_whole_on_every_route",
        f"{_OWN}:test_an_answer_cut_inside_a_character_ends_the_same_way_in_a_stream",
        f"{_NATIVE}:test_no_piece_of_a_stream_holds_half_a_character",
        f"{_CHAT}:test_a_stream_joins_to_the_answer",
        "runtime/server/test_sse.py:test_an_event_is_one_line_of_json",
    ],
    "C19 usage in streams": [
        f"{_CHAT}:test_usage_comes_where_it_is_asked_for_and_nowhere_else",
        f"{_OWN}:test_usage_of_a_stream_of_completions_comes_where_it_is_asked_for",
    ],
    "C21 true reasons, usage and names": [
        f"{_CHAT}:test_reasons_are_true",
        f"{_CHAT}:test_an_answer_with_usage",
        f"{_CHAT}:test_a_stream_joins_to_the_answer",
        f"{_OWN}:test_ids_and_names_of_answers",
    ],
    "C41 one begin token": [
        "runtime/server/test_chat_prompt.py:test_one_begin_token_at_most",
        "runtime/server/test_real_model.py:test_the_chat_prompt_is_that_of_the_models_template",
        "runtime/text/test_tokenizer.py:*",
        "runtime/text/test_chat.py:*",
    ],
    "C43 templates that refuse a role": [
        f"{_CHAT}:test_a_refusing_template_speaks_to_the_client",
        f"{_CHAT}:test_what_cannot_be_meant_is_refused_by_name",
        f"{_CHAT}:test_the_prompt_is_the_templates",
    ],
    "C45 content in parts": [
        f"{_CHAT}:test_parts_of_text_are_joined",
        f"{_CHAT}:test_what_cannot_be_meant_is_refused_by_name",
    ],
    "C73 indices of streamed calls": [
        f"{_RUN}:test_calls_in_one_answer_have_their_own_places",
        "runtime/server/test_real_model.py:test_a_call_has_arguments_of_its_schema",
    ],
    "C75 the reason of an answer with calls": [
        f"{_RUN}:test_a_call_is_apart_from_the_text",
        f"{_RUN}:test_one_call_where_one_is_asked_for",
        f"{_RUN}:test_a_model_that_would_not_call_is_held_to_it",
        f"{_CHAT}:test_what_cannot_be_meant_is_refused_by_name",
    ],
    "C77 tool_choice none": [f"{_RUN}:test_choice_none_leaves_calls_in_the_text"],
    "C79 clients that go away": [
        f"{_APP}:test_a_client_that_goes_away_frees_its_request_within_two_steps",
        f"{_APP}:test_a_storm_of_disconnects_leaves_nothing",
        "runtime/server/test_overload.py:test_a_client_that_goes_while_its_grammar_is_compiled_frees_its_request",
        "runtime/server/test_soak.py:test_a_server_stands_a_short_soak",
    ],
    "C81 a request that outgrows the pool": [
        f"{_OWN}:test_a_request_that_outgrows_the_pool_ends_alone",
        "public_reports/test_language.py:test_a_request_that_outgrows_the_pool_ends_alone",
        "public_reports/test_language.py:test_two_requests_that_do_not_fit_together_both_finish",
    ],
    "C83 broken bodies and fields of the wrong type": [
        f"{_APP}:test_a_broken_body_is_the_clients_fault",
        f"{_APP}:test_other_kinds_of_content_are_refused",
        f"{_APP}:test_reading_what_is_written_is_405",
        f"{_NATIVE}:test_a_wrong_body_is_refused_in_words",
        f"{_CHAT}:test_what_cannot_be_meant_is_refused_by_name",
        f"{_COMPLETIONS}:test_what_cannot_be_meant_is_refused_by_name",
        f"{_OWN}:test_fields_of_the_wrong_type_are_the_clients_fault",
    ],
    "C85 more than runs at a time": [
        f"{_CHAT}:test_more_than_runs_at_a_time_waits_its_turn",
        "public_reports/test_language.py:test_more_requests_than_may_run_all_finish_in_order",
    ],
    "C94 routes without a key": [
        f"{_APP}:test_every_route_but_the_probes_asks_for_a_key",
        f"{_APP}:test_no_other_form_of_a_key_opens",
        f"{_APP}:test_tricks_with_paths_do_not_open",
        f"{_APP}:test_each_key_opens_and_is_in_no_line",
    ],
    "C96 hostile templates": [
        "runtime/text/test_template_sandbox.py:*",
        f"{_OWN}:test_a_hostile_template_harms_its_own_request_only",
    ],
}
"""The sections streaming and usage, chat templates, tool calls, server, access control; by the numbers of the reports."""
