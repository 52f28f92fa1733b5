"""The document says what the server does: every route is in it, and requests made from it get documented answers."""

from __future__ import annotations

from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from sglang_lite.runtime.server.openapi_document import BODIES, WITHOUT_BODY
from tests.support.live_server import LiveServer

CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
EXAMPLES = 6


def document(server: LiveServer) -> dict[str, Any]:
    return server.http.get("/openapi.json").json()


def test_every_post_route_has_its_body(server: LiveServer) -> None:
    paths = document(server)["paths"]
    posts = {path for path, operations in paths.items() if "post" in operations and not path.startswith("/viewer")}
    assert posts == set(BODIES) | set(WITHOUT_BODY)
    for path in BODIES:
        content = paths[path]["post"]["requestBody"]["content"]
        name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert document(server)["components"]["schemas"][name]["additionalProperties"] is False


def test_the_document_is_whole(server: LiveServer) -> None:
    """Each reference leads somewhere."""
    whole = document(server)
    names = set(whole["components"]["schemas"])

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [one for inner in value.values() for one in references(inner)]
        return [one for inner in value for one in references(inner)] if isinstance(value, list) else []

    assert {reference.removeprefix("#/components/schemas/") for reference in references(whole)} <= names


@pytest.mark.parametrize("path", sorted(BODIES))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_requests_made_from_the_document(server: LiveServer, path: str) -> None:
    """Valid and invalid bodies, drawn from the schema with a fixed seed: never a server error, always a documented answer."""
    schema = schemathesis.openapi.from_dict(document(server))
    operation = schema[path]["POST"]
    for mode in schemathesis.GenerationMode:
        strategy = operation.as_strategy(generation_mode=mode)

        @hypothesis.settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(case=strategy)
        def ask(case: Any) -> None:
            if isinstance(case.body, dict):
                case.body |= {"max_tokens": 2} if case.body.get("max_tokens", 0) is None else {}
            case.call_and_validate(base_url=server.url, checks=CHECKS, timeout=30)

        ask()
    assert httpx.get(f"{server.url}/health", timeout=10).status_code == 200
