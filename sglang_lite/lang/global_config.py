"""`global_config`: SGLang's settings of the process; what each does here stands beside it."""

from __future__ import annotations

from sglang_lite.lang.backends.registry import current_backend, set_default_backend


class GlobalConfig:
    """Settings that programs read and write as attributes.

    Attributes:
        verbosity: 2 or more: what programs append and generate is written to stderr.
        skip_special_tokens_in_output: whether special tokens are left out of what gens give.
        spaces_between_special_tokens_in_out: without effect: texts are the bytes of their tokens, no spaces are added.
        enable_precache_with_tracing: without effect: rows of a batch share what they have in common without a trace.
        enable_parallel_encoding: without effect: `join("concate_and_append")` always joins texts.
    """

    def __init__(self) -> None:
        self.verbosity = 0
        self.skip_special_tokens_in_output = True
        self.spaces_between_special_tokens_in_out = True
        self.enable_precache_with_tracing = True
        self.enable_parallel_encoding = True

    @property
    def default_backend(self) -> object:
        """The backend that runs use where nothing else is said; None until there is one. Set it to change that."""
        return current_backend()

    @default_backend.setter
    def default_backend(self, backend: object) -> None:
        set_default_backend(backend)


global_config = GlobalConfig()
"""The one of the process."""
