"""Twenty prompts with JSON Schemas and regexes as clients send them: what jump-forward is measured and tested with."""

from __future__ import annotations

import json
from typing import Any


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    } | more


_TEXT = {"type": "string", "maxLength": 24}
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 9999}
_SCHEMAS: list[tuple[str, dict[str, Any]]] = [
    ("A person who lives in Paris:", _object({"first_name": _TEXT, "last_name": _TEXT, "age": _NUMBER})),
    ("A book about the sea:", _object({"title": _TEXT, "author": _TEXT, "published_in_year": _NUMBER})),
    ("The weather of today:", _object({"temperature": _NUMBER, "conditions": {"enum": ["sunny", "cloudy", "rainy"]}})),
    (
        "An order of two items:",
        _object(
            {
                "order_number": _NUMBER,
                "customer": _object({"name": _TEXT, "email_address": _TEXT}),
                "shipping_address": _object({"street": _TEXT, "city": _TEXT, "postal_code": _NUMBER}),
            }
        ),
    ),
    ("Is the sky blue?", _object({"reasoning": _TEXT, "answer": {"type": "boolean"}})),
    (
        "A list of fruits:",
        _object({"fruits": {"type": "array", "items": _object({"name": _TEXT, "colour": _TEXT}), "maxItems": 2}}),
    ),
    (
        "Call a function to search for cats:",
        _object({"function_name": {"const": "web_search"}, "arguments": _object({"query": _TEXT})}),
    ),
    (
        "The sentiment of 'I love it':",
        _object({"sentiment": {"enum": ["positive", "negative", "neutral"]}, "confidence": _NUMBER}),
    ),
    (
        "A movie:",
        _object(
            {
                "movie_title": _TEXT,
                "director": _TEXT,
                "duration_in_minutes": _NUMBER,
                "is_in_colour": {"type": "boolean"},
            }
        ),
    ),
    ("A point on a map:", _object({"latitude": _NUMBER, "longitude": _NUMBER, "description": _TEXT})),
    ("A bank account:", _object({"account_holder": _TEXT, "currency": {"const": "EUR"}, "balance": _NUMBER})),
    (
        "A recipe:",
        _object(
            {
                "recipe_name": _TEXT,
                "preparation_time": _NUMBER,
                "ingredients": {"type": "array", "items": _TEXT, "maxItems": 3},
            }
        ),
    ),
]
_REGEXES: list[tuple[str, str]] = [
    (
        "What do you think about the capital of France?",
        r"Thought: [a-zA-Z ]{1,30}\nAction: (search|lookup)\[[a-z ]{1,12}\]\nObservation:",
    ),
    ("The date of today is", r" \d{4}-\d{2}-\d{2}T\d{2}:\d{2}:00Z"),
    ("Fill in the form.", r"First name: [A-Z][a-z]{1,10}\nLast name: [A-Z][a-z]{1,10}\nProfession: [a-z]{1,12}\n"),
    ("Answer with yes or no: is water wet?", r"The answer is: (yes|no), without any doubt\."),
    ("My address is", r" https://www\.example\.com/[a-z]{1,8}/index\.html"),
    ("An HTML page:", r"<html><head><title>[A-Za-z ]{1,20}</title></head><body>[A-Za-z ]{1,20}</body></html>"),
    ("A Python function:", r"def [a-z]{1,10}\(self\) -> None:\n    return None\n"),
    ("A SQL query:", r"SELECT (name|age) FROM customers WHERE id = \d{1,3} ORDER BY (name|age) DESC;"),
]

CASES: list[tuple[str, dict[str, Any]]] = [
    *((f"{prompt}\n", {"json_schema": json.dumps(schema)}) for prompt, schema in _SCHEMAS),
    *((prompt, {"regex": pattern}) for prompt, pattern in _REGEXES),
]
"""(prompt, the constraint as sampling parameters)."""
