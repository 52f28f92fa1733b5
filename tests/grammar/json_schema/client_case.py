"""One schema of a client with what it accepts and rejects."""

from __future__ import annotations

from typing import NamedTuple

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


class ClientSchema(NamedTuple):
    """A name, a schema, values that are valid, and values that are not."""

    name: str
    schema: dict[str, object]
    valid: list[object]
    invalid: list[object]


def closed(properties: dict[str, object], **more: object) -> dict[str, object]:
    """An object as OpenAI's strict mode wants it: all required, nothing else."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }
