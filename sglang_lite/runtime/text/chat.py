"""Chat templates: messages -> prompt text, and the text around each turn; knows no tokens."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cached_property
from typing import Any

from jinja2 import Template
from jinja2.exceptions import SecurityError, TemplateError

from sglang_lite.chat_formats.recognise import ChatFormat, recognise
from sglang_lite.errors import RequestError
from sglang_lite.runtime.text.template_limits import RenderLimits
from sglang_lite.runtime.text.template_sandbox import TemplateEnvironment

Turn = tuple[str, str]  # role, content

# For models without a template. The open assistant turn ends without a space: tokenizers put it in front of the word.
PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] | upper + ': ' + message['content'] + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)

# What rendering can raise apart from TemplateError; a template is foreign code, so all of it is the request's fault.
_PROVOKED = (
    TemplateError, ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, SyntaxError,
    TypeError, ValueError,
)  # fmt: skip
_MAX_BLOCKS = 4096  # role blocks kept; one is a few hundred characters
_SENTINEL = "\ue000turn{}\ue001"  # private-use characters: no template tests for them, no filter changes them


class ChatTemplate:
    """One model's chat format. Safe to use from several threads.

    `render` gives the prompt of a whole dialogue. `role_begin` and `role_end` give the text around the turns of a dialogue
    that grows piece by piece: `role_begin + content + role_end` of all turns is `render` of them. They are found by
    rendering with sentinels in place of contents, so they depend on the sequence of roles only, and are cached by it. A
    template may write BOS at the start (see `Tokenizer.needs_bos`).

    Args:
        source: Jinja source, or None for the plain format: `USER: text`, `ASSISTANT: text`, one line a turn.
        special: strings templates use: `bos_token`, `eos_token`, `unk_token`, `pad_token` (`Tokenizer.template_variables`).
        limits: bounds of one rendering.
        tokens: texts that the model has tokens of their own for: marks of thinking are told by them.
    """

    def __init__(
        self,
        source: str | None,
        special: Mapping[str, str] | None = None,
        *,
        limits: RenderLimits | None = None,
        tokens: Container[str] = (),
    ) -> None:
        self.source = PLAIN_TEMPLATE if source is None else source
        self.is_plain = source is None
        self._special = dict(special or {})
        self._tokens = tokens
        self._limits = limits or RenderLimits()
        self._environment = TemplateEnvironment()
        self._compiled: Template | None = None
        self._blocks: OrderedDict[tuple[Any, ...], str] = OrderedDict()
        self._lock = threading.Lock()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt text of a dialogue.

        Args:
            messages: each with `role` and mostly `content`; keys with the value None are left out. Never changed.
            add_generation_prompt: end with the start of an assistant turn.
            variables: more names for the template (`tools`, `documents`, `enable_thinking`, ...).

        Raises:
            RequestError: a message is malformed, or the template refuses, fails or takes too long; with its words.
        """
        try:
            given = {
                "tools": None,
                "documents": None,
                **self._special,
                **_plain(variables or {}),
                "messages": [_message(i, message) for i, message in enumerate(messages)],
                "add_generation_prompt": add_generation_prompt,
            }
            if self._compiled is None:
                self._compiled = self._environment.compile_bounded(self.source, self._limits)
            return self._environment.render_bounded(self._compiled, given, self._limits)
        except RequestError:
            raise
        except SecurityError as error:
            raise RequestError(f"chat template was stopped: {error.message}") from None
        except TemplateError as error:
            raise RequestError(f"chat template: {error.message or type(error).__name__}") from None
        except _PROVOKED as error:
            raise RequestError(
                f"chat template failed on these messages: {type(error).__name__}: {str(error)[:500]}"
            ) from error

    @cached_property
    def format(self) -> ChatFormat:
        """How the model writes tool calls and thinking, as far as its template says."""
        try:
            prompt = self.render([{"role": "user", "content": "x"}], True)
        except RequestError:  # a template that wants more than one user turn tells nothing by its prompt
            prompt = ""
        return recognise(self.source, tokens=self._tokens, generation_prompt=prompt)

    def role_begin(self, history: Sequence[Turn], role: str, *, closed: bool = False) -> str:
        """The text between the end of the previous turn and the content of a turn of `role`.

        For the first turn this includes whatever the template puts in front, a default system block for instance.

        Args:
            history: the turns so far, in order; only their roles matter.
            role: role of the turn that begins.
            closed: an assistant turn whose content is given, not generated. An open one begins with the template's
                generation prompt, which some templates make different.

        Raises:
            RequestError: the template refuses the roles, or is not one where turns follow each other.
        """
        roles = (*(turn[0] for turn in history), role)
        return self._cached(("begin", closed, roles), lambda: self._find_begin(roles, closed=closed))

    def role_end(self, history: Sequence[Turn], role: str) -> str:
        """The text right after the content of a turn of `role` that follows `history`; raises as `role_begin` does."""
        roles = (*(turn[0] for turn in history), role)
        return self._cached(("end", roles), lambda: self._around(roles)[1])

    def shown_content(self, history: Sequence[Turn], role: str, content: str) -> str:
        """`content` as the template shows it in a turn of `role` that follows `history`.

        Many templates trim contents. A turn whose whole content is known must be trimmed too to get the ids of `render`;
        a turn that is written or generated piece by piece is kept as it is.
        """
        roles = (*(turn[0] for turn in history), role)
        sides = self._cached(("trim", roles), lambda: self._find_trim(roles))
        content = content.lstrip() if "l" in sides else content
        return content.rstrip() if "r" in sides else content

    def _find_trim(self, roles: tuple[str, ...]) -> str:
        """The sides of the last turn's content that lose white space: "", "l", "r" or "lr"."""
        pad = "\n "
        before, after = self._around(roles, pad)
        return ("" if before.endswith(pad) else "l") + ("" if after.startswith(pad) else "r")

    def _find_begin(self, roles: tuple[str, ...], *, closed: bool) -> str:
        *earlier, role = roles
        before = self._render_roles(earlier) if earlier else ""
        if role == "assistant" and earlier and not closed:
            upto = self._render_roles(earlier, add_generation_prompt=True)
        else:
            upto = self._around(roles)[0]
        if not upto.startswith(before):
            raise self._no_blocks(roles, "adding this turn changes the text before it")
        return upto[len(before) :]

    def _around(self, roles: tuple[str, ...], pad: str = "") -> tuple[str, str]:
        """What stands before and after the last turn's content, which is put between two `pad`."""
        text = self._render_roles(roles, pad=pad)
        at = -1
        for i in range(len(roles)):
            sentinel = _SENTINEL.format(i)
            if text.count(sentinel) != 1:
                raise self._no_blocks(roles, f"it shows the content of turn {i} {text.count(sentinel)} times")
            if text.index(sentinel) < at:
                raise self._no_blocks(roles, f"it shows turn {i} before the turn it follows")
            at = text.index(sentinel)
        return text[:at], text[at + len(_SENTINEL.format(len(roles) - 1)) :]

    def _render_roles(self, roles: Sequence[str], *, add_generation_prompt: bool = False, pad: str = "") -> str:
        messages = [{"role": role, "content": _SENTINEL.format(i)} for i, role in enumerate(roles)]
        if pad:
            messages[-1]["content"] = pad + messages[-1]["content"] + pad
        return self.render(messages, add_generation_prompt)

    def _no_blocks(self, roles: Sequence[str], why: str) -> RequestError:
        return RequestError(
            f"chat template cannot be written turn by turn for the roles {', '.join(roles)}: {why}; "
            f"render the whole dialogue as one prompt instead"
        )

    def _cached(self, key: tuple[Any, ...], find: Callable[[], str]) -> str:
        with self._lock:
            block = self._blocks.get(key)
            if block is not None:
                self._blocks.move_to_end(key)
                return block
        block = find()
        with self._lock:
            self._blocks[key] = block
            while len(self._blocks) > _MAX_BLOCKS:
                self._blocks.popitem(last=False)
        return block


def _message(index: int, message: Mapping[str, Any]) -> dict[str, Any]:
    """A copy for the template: plain data, no None."""
    if not isinstance(message, Mapping):
        raise RequestError(
            f"chat message {index} is a {type(message).__name__}, expected an object with 'role' and 'content'"
        )
    if not isinstance(message.get("role"), str):
        raise RequestError(f"chat message {index} has the role {message.get('role')!r}, expected a string")
    return {key: value for key, value in _plain(message).items() if value is not None}


def _plain(value: Any) -> Any:
    """A copy out of plain data only: objects with methods of their own do not reach a template."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    raise RequestError(
        f"a chat message holds a {type(value).__name__}, expected strings, numbers, booleans, null, lists and objects"
    )
