"""A type in a few lines for a prompt, and the gens that carry one; the words are those of `grammar.json_schema`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from sglang_lite.errors import RequestError
from sglang_lite.lang.ir import SglGen
from sglang_lite.lang.typed.gens import Retries, SglTypedGen
from sglang_lite.lang.typed.spec import Typed, name_of, typed


def describe_type(annotation: Any) -> str:
    """A short text of a type, the same whenever the type is: what a gen of it may write, with an example.

    Raises:
        UnsupportedError: a type that has no form here.
    """
    return describe(typed(annotation))


def describe(wanted: Typed) -> str:
    """A short text of what a gen is held to; ends with a line break, and is empty for free text."""
    if wanted.choices is not None:
        return "One of: " + ", ".join(wanted.choices) + "\n"
    if wanted.json_schema is not None:
        return describe_schema_text(wanted.json_schema)
    kind = wanted.form.root_schema().get("type", "string")
    return "" if kind == "string" else f"A JSON {kind}.\n"


def describe_schema_text(schema: str) -> str:
    """A short text of a JSON schema."""
    from sglang_lite.grammar.json_schema import describe_schema  # a large package: only where a schema is described

    return "JSON: " + describe_schema(schema) + "\n"


def typed_gen(
    gen: SglGen, annotation: Any, check: Callable[[Any], Any] | None, retries: Retries, is_described: bool
) -> SglTypedGen[Any]:
    """`gen` with a type (None: its text, as it is constrained), checked, tried again and described as asked.

    Raises:
        RequestError: a type beside another constraint; retries without anything to check.
        UnsupportedError: a type that has no form here.
    """
    what = f"making gen {gen.name!r}"
    if annotation is not None:
        for name in ("json_schema", "dtype", "ebnf", "structural_tag"):
            if (value := getattr(gen, name)) is not None:
                raise RequestError(f"{what}: got type={name_of(annotation)} and {name}={value!r}, expected one of them")
        wanted = typed(annotation, regex=gen.regex, check=check)
    else:
        wanted = None if check is None else typed(str, regex=gen.regex, check=check)
    if retries.count and wanted is None and gen.json_schema is None:
        raise RequestError(f"{what}: got retries with nothing to check; give a type, a json_schema or a check, too")
    described = ""
    if is_described:
        described = describe_schema_text(gen.json_schema) if gen.json_schema is not None else ""
        described = describe(wanted) if wanted is not None and not described else described
    values = {field.name: getattr(gen, field.name) for field in fields(SglGen)}
    return SglTypedGen(**values, typed=wanted, retries=retries, described=described)
