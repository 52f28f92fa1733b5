"""`/v1/score` on an engine whose log-probabilities are known, and on the real model against its own prompts."""

from __future__ import annotations

import math

import pytest

from tests.support.live_server import LiveServer


def test_probabilities_of_labels_after_each_item(server: LiveServer) -> None:
    """The engine gives every label that is asked for the log-probability -3."""
    reply = server.post("/v1/score", {"query": "Is it? ", "items": ["Yes", "No"], "label_token_ids": [65, 66, 65]})
    body = reply.json()
    assert (reply.status_code, body["object"], body["model"]) == (200, "scoring", "talking")
    assert body["scores"] == [[pytest.approx(math.exp(-3))] * 3] * 2
    assert body["usage"]["prompt_tokens"] == 2 * len("Is it? ") + 5


def test_softmax_is_among_the_labels(server: LiveServer) -> None:
    given = {"query": "a", "items": "b", "label_token_ids": [1, 2, 3, 4], "apply_softmax": True}
    assert server.post("/v1/score", given).json()["scores"] == [[0.25] * 4]


def test_an_item_may_come_first_and_ids_may_be_given(server: LiveServer, runner: object) -> None:
    server.post("/v1/score", {"query": "Q", "items": ["I"], "label_token_ids": [1], "item_first": True})
    server.post("/v1/score", {"query": [72], "items": [[73], [74, 75]], "label_token_ids": [1]})
    assert runner.prompts == [b"IQ", b"HI", b"HJK"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"query": "a", "items": ["b"], "label_token_ids": []}, "label_token_ids is empty"),
        ({"query": "a", "items": ["b"], "label_token_ids": [10**6]}, "label_token_ids has 1000000"),
        ({"query": "a", "items": [], "label_token_ids": [1]}, "items is empty"),
        ({"query": "a", "items": [[1]], "label_token_ids": [1]}, "of different kinds"),
        ({"query": "", "items": [""], "label_token_ids": [1]}, "a prompt is empty"),
        ({"items": ["a"]}, "label_token_ids"),
    ],
)
def test_wrong_bodies_are_refused_by_name(server: LiveServer, body: dict[str, object], said: str) -> None:
    reply = server.post("/v1/score", body)
    assert reply.status_code == 400
    assert said in reply.json()["error"]["message"]
