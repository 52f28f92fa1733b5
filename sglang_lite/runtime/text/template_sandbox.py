"""A Jinja environment for templates nobody vouches for: no way out, and bounded time and memory.

Templates come inside model files. Beside Jinja's sandbox (no underscore attributes, no changes to what is passed in) every
value a template makes is bounded, and every loop step, call, filter and output counts against a `RenderBudget`, which
also looks at the CPU clock of the thread. It knows nothing of chats.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Template, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from sglang_lite.runtime.text.template_filters import bounded_filters, join
from sglang_lite.runtime.text.template_limits import (
    RenderBudget,
    RenderLimits,
    check_percent,
    check_replace,
    current_budget,
)

_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        {
            "capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalnum", "isalpha", "isascii",
            "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower", "lstrip",
            "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition", "rsplit", "rstrip",
            "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper",
        }
    ),
    dict: frozenset({"copy", "get", "items", "keys", "values"}),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index"}),
}  # fmt: skip
_VALUES = (str, int, float, bytes, dict, list, tuple, set, frozenset)
_WIDE_FORMAT = re.compile(r"\d{5}|:[^{}]*\{")


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """The environment of one chat template: HF's settings and helpers, with bounds."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[GenerationTag, loopcontrols]
        )
        self.finalize = _finalize
        self.filters = bounded_filters(self.filters)
        self.globals.pop("lipsum", None)
        self.globals["dict"] = _dict
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        self.globals["namespace"] = _CheckedNamespace

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _Guards().visit(super()._parse(source, name, filename))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Run an operator whose result is known to be bounded."""
        budget = current_budget.get()
        budget.step()
        if operator == "**":
            if not (abs(left) <= 2**64 and abs(right) <= 100):
                raise SecurityError(f"the template raises {left!r} to the power {right!r}")
        elif operator == "*":
            for sequence, times in ((left, right), (right, left)):
                if isinstance(sequence, (str, list, tuple)) and isinstance(times, int):
                    budget.check_chars(len(sequence) * times)
        elif operator == "%" and isinstance(left, str):
            values = right if isinstance(right, tuple) else right.values() if isinstance(right, dict) else (right,)
            check_percent(budget, left, values)
        return budget.check_value(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call what a template may call, on bounded arguments, with a bounded result."""
        budget = current_budget.get()
        budget.step()
        method = getattr(__obj, "__wrapped__", __obj)  # the sandbox wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, _VALUES):
            _check_method(budget, owner, method.__name__, args, kwargs)
            if method.__name__ == "join" and isinstance(owner, str) and len(args) == 1:
                return join(args[0], owner)
        for value in (*args, *kwargs.values()):
            budget.check_value(value)
        return budget.check_value(super().call(__context, __obj, *args, **kwargs))

    def compile_bounded(self, source: str, limits: RenderLimits) -> Template:
        """Compile a template of allowed length.

        Raises:
            jinja2.TemplateError, SyntaxError, RecursionError, MemoryError: it does not compile.
        """
        if len(source) > limits.source_chars:
            raise SecurityError(f"the template has {len(source)} characters, allowed are {limits.source_chars}")
        return self.from_string(source)

    @staticmethod
    def render_bounded(template: Template, variables: Mapping[str, Any], limits: RenderLimits) -> str:
        """Render under `limits`; any exception of an ordinary kind can come out, whatever the template provokes."""
        token = current_budget.set(RenderBudget(limits))
        try:
            return template.render(variables)
        finally:
            current_budget.reset(token)


class GenerationTag(Extension):
    """`{% generation %} ... {% endgeneration %}` marks what a model wrote, for training; here it is its content."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _CheckedNamespace(Namespace):
    """A namespace whose attributes never start with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        attributes = dict(*args[1:], **kwargs)
        for name in attributes:
            _CheckedNamespace._check(name)
        Namespace.__init__(args[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _CheckedNamespace._check(name)
        super().__setitem__(name, value)

    @staticmethod
    def _check(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise SecurityError(f"a namespace attribute must not start with an underscore, got {name!r}")


class _Guards(NodeTransformer):
    """Routes what Jinja does not let an environment intercept through counting filters."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "__steps")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(list(node.nodes), lineno=node.lineno), "__concat")

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "__checked")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return node if node.ctx == "store" else _filtered(node, "__checked")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, "__checked")

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:  # noqa: N802
        # As a constant, so that finalize counts it: data inside a loop adds up.
        return nodes.Const(node.data, lineno=node.lineno)


def _filtered(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


@pass_context
def _finalize(context: Context, value: Any) -> str:
    budget = current_budget.get()
    budget.step()
    text = budget.text(value)
    budget.emit(text)
    return text


def _check_method(
    budget: RenderBudget, owner: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    allowed = next((names for kind, names in _METHODS.items() if isinstance(owner, kind)), frozenset())
    if name not in allowed:
        raise SecurityError(f"templates cannot call the method {name!r} of {type(owner).__name__!r} objects")
    if not isinstance(owner, str):
        return
    if name == "replace" and len(args) > 1:
        check_replace(budget, owner, args[0], args[1])
    elif name == "format":
        if _WIDE_FORMAT.search(owner):
            raise SecurityError(f"the template formats with a width that is not allowed: {owner[:80]!r}")
        longest = max((len(budget.text(value)) for value in (*args, *kwargs.values())), default=0)
        budget.check_chars(len(owner) + owner.count("{") * longest)


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _raise_exception(message: Any) -> None:
    raise TemplateError(current_budget.get().text(message))


def _strftime_now(format: str) -> str:
    if len(format) > 256 or re.search(r"\d{3}", format):
        raise SecurityError(f"strftime_now is asked for the format {format[:80]!r}")
    return datetime.datetime.now().strftime(format)  # templates mean the local date
