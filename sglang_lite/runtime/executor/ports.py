"""What the executor needs from the engine that drives it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sglang_lite.request_tree import LogprobParams, SamplingParams
from sglang_lite.runtime.executor.generation import Generation
from sglang_lite.runtime.scheduler.messages import AddReq, Message, ReqOutput
from sglang_lite.runtime.text.chat import ChatTemplate
from sglang_lite.runtime.text.tokenizer import Tokenizer


class RequestPort(Protocol):
    """Where requests go. All calls are made on the engine's thread."""

    def submit(self, req: AddReq, on_output: Callable[[ReqOutput], None]) -> None:
        """Queue a request; where its sampling has a constraint, that is compiled first. Outputs come to `on_output`."""
        ...

    def send(self, message: Message) -> None:
        """Queue any other message for the scheduler's next step."""
        ...

    def prepare_grammar(self, params: SamplingParams) -> None:
        """A request with the constraint of `params` will come: compile it meanwhile. An error is told by that request."""
        ...

    def new_rid(self) -> str:
        """A request id that was never used."""
        ...


class SaltedPort:
    """A port whose requests have a namespace of the radix tree; see `RequestPort`."""

    def __init__(self, port: RequestPort, namespace: str) -> None:
        self._port = port
        self._namespace = namespace

    def submit(self, req: AddReq, on_output: Callable[[ReqOutput], None]) -> None:
        """As the port's."""
        self._port.submit(replace(req, namespace=self._namespace), on_output)

    def send(self, message: Message) -> None:
        """As the port's."""
        self._port.send(message)

    def prepare_grammar(self, params: SamplingParams) -> None:
        """As the port's."""
        self._port.prepare_grammar(params)

    def new_rid(self) -> str:
        """As the port's."""
        return self._port.new_rid()


class Submit(Protocol):
    """Starts a request of one op on one branch."""

    def __call__(
        self,
        ids: tuple[int, ...],
        params: SamplingParams,
        *,
        logprob: LogprobParams | None = None,
        choices: tuple[tuple[int, ...], ...] | None = None,
    ) -> Generation:
        """Returns where the request's outputs will gather."""
        ...


@dataclass(frozen=True, slots=True)
class TextParts:
    """The parts that turn text into ids and back. `context_len`: the most tokens a branch may have; None: not known."""

    tokenizer: Tokenizer
    chat: ChatTemplate
    visible_bytes: Sequence[bytes]
    context_len: int | None = None

    def token_text(self, token_id: int) -> str:
        """The text of one token, special tokens included; half characters show as U+FFFD."""
        return self.tokenizer.token_bytes[token_id].decode("utf-8", "replace")
