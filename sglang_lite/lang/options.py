"""Options of a run that SGLang's signatures have no place for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sglang_lite.errors import RequestError


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run behaves, beside its sampling.

    `on_error`: `raise` raises the first failed op's error at the end of `run`; `state` keeps it on the state, to be
    asked for by `s.error()` (a read of a failed value raises either way). `seed`: every op without a seed of its own
    derives one from it, in `run_batch` by row; None: the backend draws one. `timeout`: seconds after which the program
    is cancelled with `ProgramTimeoutError`. `max_total_tokens`: prompt and output tokens of all gens and selects of the
    run after which it is cancelled; the op that passes the limit still ends.
    `record`: keep what `s.record()` gives, of this run and of those inside it.

    Raises:
        RequestError: a field has a value that is not allowed.
    """

    on_error: Literal["raise", "state"] = "raise"
    seed: int | None = None
    timeout: float | None = None
    max_total_tokens: int | None = None
    record: bool = False

    def __post_init__(self) -> None:
        """Check every field."""
        if self.on_error not in ("raise", "state"):
            raise RequestError(f"checking RunOptions: on_error={self.on_error!r}, expected 'raise' or 'state'")
        if self.seed is not None and self.seed < 0:
            raise RequestError(f"checking RunOptions: seed={self.seed!r}, expected a whole number >= 0 or None")
        if self.timeout is not None and not self.timeout > 0:
            raise RequestError(f"checking RunOptions: timeout={self.timeout!r}, expected seconds > 0 or None")
        if self.max_total_tokens is not None and self.max_total_tokens < 1:
            raise RequestError(
                f"checking RunOptions: max_total_tokens={self.max_total_tokens!r}, expected a whole number >= 1 or None"
            )
