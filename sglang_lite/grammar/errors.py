"""The errors of the grammar package; every one names what was wrong and, where there is one, the place.

```
GrammarError (a ValueError)
├── InvalidGrammarError      the source is malformed: an unclosed group, a reversed range, no choices
├── UnsupportedGrammarError  the source is well-formed but asks for something outside the offered languages
├── GrammarTooLargeError     a limit on size, depth or memory was passed, at compile time or while tables fill
├── InvalidVocabularyError   token bytes, special ids and vocabulary size do not fit together
├── InvalidBitmaskError      a bitmask or logits array has the wrong shape, type or row
└── InvalidRollbackError     more tokens were taken back than had been accepted
```
"""

from __future__ import annotations

_SHOWN = 80


class GrammarError(ValueError):
    """Anything that goes wrong in the grammar package through its caller's input.

    `source` is the grammar's text and `position` the index in it where the fault lies; both are None where there is none.
    """

    def __init__(self, message: str, *, source: str | None = None, position: int | None = None) -> None:
        self.source = source
        self.position = position
        if source is not None and position is not None:
            message = f"{message}, at position {position} of {shorten(source)}"
        elif source is not None:
            message = f"{message}, in {shorten(source)}"
        super().__init__(message)


class InvalidGrammarError(GrammarError):
    """The source is malformed."""


class UnsupportedGrammarError(GrammarError):
    """The source asks for a construct that is refused by name rather than approximated."""


class GrammarTooLargeError(GrammarError):
    """A limit on automaton size, nesting or table memory was passed."""


class InvalidVocabularyError(GrammarError):
    """The parts of a vocabulary contradict each other."""


class InvalidBitmaskError(GrammarError):
    """An array handed in for masks or logits does not have the documented shape and type."""


class InvalidRollbackError(GrammarError):
    """A matcher was asked to take back more tokens than it holds."""


def shorten(text: str) -> str:
    """`repr` of `text`, its middle cut out when it is long."""
    if len(text) <= _SHOWN:
        return repr(text)
    return f"{text[: _SHOWN // 2]!r}...{text[-_SHOWN // 4 :]!r} ({len(text)} characters)"
