"""SGLang's named chat templates: how turns are written where no model's own template is used.

Behaviour matched: SGLang's `lang/chat_template.py` (names, prefixes, suffixes, stop strings, matching by model path).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sglang_lite.errors import RequestError


@dataclass(frozen=True, slots=True)
class NamedTemplate:
    """A template: what stands before and behind each role's turn, and what ends a generation in one.

    `default_system_prompt`: put before the first turn of a dialogue without a system turn. `merges_system`: a system
    turn has no turn of its own: it is part of the first user turn (Llama 2).
    """

    name: str
    parts: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    default_system_prompt: str | None = None
    stop_str: tuple[str, ...] = ()
    merges_system: bool = False

    def role_text(self, role: str) -> tuple[str, str]:
        """What begins and ends a turn of `role`; roles that the template lacks look like the user's."""
        return self.parts.get(role) or self.parts["user"]

    def begin(self, role: str, before: Sequence[str]) -> str:
        """What is written where a turn of `role` begins after turns of the roles `before`."""
        head = ""
        if role != "system" and not before and self.default_system_prompt is not None:
            begin, end = self.role_text("system")
            head = f"{begin}{self.default_system_prompt}{end}"
        if self.merges_system:
            if role == "system" and not before:
                return self.role_text("user")[0] + self.role_text("system")[0]
            if role == "user" and list(before) == ["system"]:
                return head
        return head + self.role_text(role)[0]


def _turns(begin: str, end: str) -> dict[str, tuple[str, str]]:
    return {role: (begin.format(role), end) for role in ("system", "user", "assistant")}


_CHATML = _turns("<|im_start|>{}\n", "<|im_end|>\n")
_COHERE = "<|START_OF_TURN_TOKEN|><|{}_TOKEN|>"
_TEMPLATES = {
    template.name: template
    for template in (
        NamedTemplate(
            "default",
            {"system": ("SYSTEM:", "\n"), "user": ("USER:", "\n"), "assistant": ("ASSISTANT:", "\n")},
        ),
        NamedTemplate("claude", {"system": ("", ""), "user": ("\n\nHuman: ", ""), "assistant": ("\n\nAssistant:", "")}),
        NamedTemplate("chatml", _CHATML, stop_str=("<|im_end|>",)),
        NamedTemplate("qwen", _CHATML, default_system_prompt="You are a helpful assistant.", stop_str=("<|im_end|>",)),
        NamedTemplate(
            "llama-3-instruct",
            _turns("<|start_header_id|>{}<|end_header_id|>\n\n", "<|eot_id|>"),
            stop_str=("<|eot_id|>",),
        ),
        NamedTemplate("llama-4", _turns("<|header_start|>{}<|header_end|>\n\n", "<|eot|>"), stop_str=("<|eot|>",)),
        NamedTemplate(
            "llama-2-chat",
            {"system": ("<<SYS>>\n", "\n<</SYS>>\n\n"), "user": ("[INST] ", " [/INST]"), "assistant": ("", " </s><s>")},
            merges_system=True,
        ),
        NamedTemplate(
            "yi-1.5",
            {
                "system": ("", ""),
                "user": ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
                "assistant": ("", "<|im_end|>\n"),
            },
            stop_str=("<|im_end|>",),
        ),
        NamedTemplate(
            "gemma-it",
            {
                "system": ("", ""),
                "user": ("<start_of_turn>user\n", "<end_of_turn>\n"),
                "assistant": ("<start_of_turn>model\n", "<end_of_turn>\n"),
            },
        ),
        NamedTemplate(
            "c4ai-command-r",
            {
                role: (_COHERE.format(name), "<|END_OF_TURN_TOKEN|>")
                for role, name in (("system", "SYSTEM"), ("user", "USER"), ("assistant", "CHATBOT"))
            },
        ),
        NamedTemplate(
            "granite-3-instruct",
            _turns("<|start_of_role|>{}<|end_of_role|>", "<|end_of_text|>"),
            stop_str=("<|end_of_text|>",),
        ),
        NamedTemplate(
            "deepseek-v3",
            {"system": ("", ""), "user": ("<｜User｜>", ""), "assistant": ("<｜Assistant｜>", "<｜end▁of▁sentence｜>")},
            stop_str=("<｜end▁of▁sentence｜>",),
        ),
    )
}
_BY_MODEL = (
    (r"deepseek-(v3|r1)(?!.*base)", "deepseek-v3"),
    (r"llama-2.*chat|(mistral|mixtral).*instruct|codellama.*instruct", "llama-2-chat"),
    (r"llama-3.*instruct", "llama-3-instruct"),
    (r"llama-4", "llama-4"),
    (r"tinyllama", "chatml"),
    (r"qwen.*(chat|instruct)", "qwen"),
    (r"yi-1\.5.*chat", "yi-1.5"),
    (r"gemma.*it", "gemma-it"),
    (r"c4ai-command-r", "c4ai-command-r"),
    (r"granite.*instruct", "granite-3-instruct"),
)


def named_template(name: str) -> NamedTemplate:
    """The template of that name.

    Raises:
        RequestError: there is none; lists those that there are.
    """
    if name not in _TEMPLATES:
        raise RequestError(f"finding a chat template: got {name!r}, expected one of {sorted(_TEMPLATES)}")
    return _TEMPLATES[name]


def template_for(model_path: str) -> NamedTemplate:
    """The template that SGLang's language takes for a model: by its path, else `default`."""
    lowered = model_path.lower()
    return next((_TEMPLATES[name] for pattern, name in _BY_MODEL if re.search(pattern, lowered)), _TEMPLATES["default"])
