r"""Escapes and bracketed classes of regular expressions: from `\` or `[` to a set of characters."""

from __future__ import annotations

import string
from dataclasses import dataclass

from sglang_lite.grammar.charset import MAX_CODE_POINT, NOTHING, CharSet
from sglang_lite.grammar.scanner import Scanner
from sglang_lite.grammar.unicode_sets import category, fold_case, shorthand

_CONTROLS = {"a": 0x07, "b": 0x08, "f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09, "v": 0x0B}
_ECMA_SPACE = CharSet.of(
    (low, high or low)
    for low, high in (
        *((0x09, 0x0D), (0x20, 0), (0xA0, 0), (0x1680, 0), (0x2000, 0x200A)),
        *((0x2028, 0x2029), (0x202F, 0), (0x205F, 0), (0x3000, 0), (0xFEFF, 0)),
    )
)
_FIXED_HEX = {"x": 2, "u": 4, "U": 8}
_REFUSED = {
    "b": r"the word boundary \b",
    "B": r"the word boundary \B",
    "N": r"the named character \N",
    "c": r"the control escape \c",
    "k": r"the back-reference \k",
    "g": r"the back-reference \g",
}


@dataclass(frozen=True, slots=True)
class Flags:
    """Modes of a part of a pattern: `i` ignore case, `s` dot matches a line feed, `a` classes are ASCII only; `ecma` is the dialect."""

    ignore_case: bool = False
    dot_all: bool = False
    ascii_only: bool = False
    ecma: bool = False


def apply_case(charset: CharSet, flags: Flags) -> CharSet:
    """`charset`, closed under case where the flags say so."""
    return fold_case(charset, ascii_only=flags.ascii_only) if flags.ignore_case else charset


def read_escape(scanner: Scanner, flags: Flags, *, in_class: bool) -> int | CharSet:
    r"""What the escape after a consumed `\` stands for: one code point, or the set of a shorthand such as `\d`.

    Raises:
        InvalidGrammarError: the escape is cut off or unknown.
        UnsupportedGrammarError: a back-reference, word boundary or another construct that is not offered.
    """
    start = scanner.position - 1
    if scanner.at_end:
        raise scanner.invalid("reading an escape: the pattern ends after a backslash", start)
    if scanner.peek() in string.digits:
        return _read_digits(scanner, start, in_class=in_class)
    letter = scanner.next()
    if letter in "sS" and flags.ecma:
        return _ECMA_SPACE if letter == "s" else _ECMA_SPACE.negate()
    if letter in "dDsSwW":
        return shorthand(letter, ascii_only=flags.ascii_only)
    if letter in "pP":
        return _read_property(scanner, start, negated=letter == "P")
    if letter in _FIXED_HEX:
        return _read_hex(scanner, start, letter)
    if letter in _CONTROLS and (letter != "b" or in_class):
        return _CONTROLS[letter]
    if letter == "c" and flags.ecma and scanner.peek() in string.ascii_letters and not scanner.at_end:
        return ord(scanner.next()) % 32
    if letter in _REFUSED:
        raise scanner.unsupported(f"{_REFUSED[letter]} is not supported", start)
    if letter in string.ascii_letters:
        raise scanner.invalid(f"the escape \\{letter} has no meaning", start)
    return ord(letter)


def _read_digits(scanner: Scanner, start: int, *, in_class: bool) -> int:
    r"""An octal escape (`\0`, `\012`, three digits in any case; in a class any octal digits); all others are back-references."""
    digits = scanner.source[scanner.position : scanner.position + 3]
    octal = scanner.take_while(string.octdigits, limit=3)
    if octal and (in_class or octal[0] == "0" or len(octal) == 3):
        if int(octal, 8) > 0o377:
            raise scanner.invalid(f"the octal escape \\{octal} is beyond \\377", start)
        return int(octal, 8)
    if in_class:
        raise scanner.invalid(f"the escape \\{digits[0]} has no meaning in a class", start)
    raise scanner.unsupported(f"the back-reference \\{digits[0]} is not supported", start)


def _read_hex(scanner: Scanner, start: int, letter: str) -> int:
    r"""The code point of `\xhh`, `\uhhhh`, `\Uhhhhhhhh` or `\u{...}`; a `\u` surrogate pair is the one character it encodes."""
    if letter == "u" and scanner.take("{"):
        digits = scanner.take_while(string.hexdigits)
        if not digits or not scanner.take("}"):
            raise scanner.invalid(r"reading \u{...}: expected hexadecimal digits and a closing brace", start)
    else:
        digits = scanner.take_while(string.hexdigits, limit=_FIXED_HEX[letter])
        if len(digits) < _FIXED_HEX[letter]:
            raise scanner.invalid(
                f"the escape \\{letter} needs {_FIXED_HEX[letter]} hexadecimal digits, got {len(digits)}", start
            )
    code = int(digits, 16)
    if code > MAX_CODE_POINT:
        raise scanner.invalid(f"the escape names code point {code:#x}, beyond 0x10ffff", start)
    if letter == "u" and 0xD800 <= code <= 0xDBFF:
        after = scanner.position
        if scanner.take("\\u"):
            low = scanner.take_while(string.hexdigits, limit=4)
            if len(low) == 4 and 0xDC00 <= int(low, 16) <= 0xDFFF:
                return 0x10000 + ((code - 0xD800) << 10) + (int(low, 16) - 0xDC00)
            scanner.position = after
    return code


def _read_property(scanner: Scanner, start: int, *, negated: bool) -> CharSet:
    r"""The general category of `\p{Lu}`, `\p{L}` or `\pL`."""
    braced = scanner.take("{")
    name = scanner.take_until("}") if braced else scanner.source[scanner.position : scanner.position + 1]
    if not name:
        raise scanner.invalid(r"reading \p: expected a category in braces, as \p{Lu}", start)
    if not braced:
        scanner.next()
    found = category(name)
    if found is None:
        raise scanner.unsupported(
            f"the Unicode property {name!r} is not supported; general categories such as Lu or L are", start
        )
    return found.negate() if negated else found


def read_class(scanner: Scanner, flags: Flags) -> CharSet:
    """The set of a bracketed class, whose `[` is consumed.

    Raises:
        InvalidGrammarError: no closing bracket, a reversed range, or a shorthand as an end of a range.
    """
    start = scanner.position - 1
    negated = scanner.take("^")
    named: list[CharSet] = []
    spelled: list[CharSet] = []
    first = not flags.ecma
    while first or not scanner.take("]"):
        if scanner.at_end:
            raise scanner.invalid("the class is not closed with ]", start)
        first = False
        item_start = scanner.position
        low = _class_item(scanner, flags)
        if scanner.peek() == "-" and scanner.source[scanner.position + 1 : scanner.position + 2] not in ("", "]"):
            scanner.next()
            high = _class_item(scanner, flags)
            if flags.ecma and (isinstance(low, CharSet) or isinstance(high, CharSet)):
                ends = (CharSet.single(end) if isinstance(end, int) else end for end in (low, high))
                named.extend((CharSet.single(ord("-")), *ends))
            else:
                spelled.append(_range(scanner, low, high, item_start))
        elif isinstance(low, CharSet):
            named.append(low)
        else:
            spelled.append(CharSet.single(low))
    # As in `re`, case concerns the characters that are spelled out, not shorthands: `\W` has members whose partners are letters.
    chars = apply_case(NOTHING.union(*spelled), flags).union(*named)
    return chars.negate() if negated else chars


def _class_item(scanner: Scanner, flags: Flags) -> int | CharSet:
    char = scanner.next()
    return read_escape(scanner, flags, in_class=True) if char == "\\" else ord(char)


def _range(scanner: Scanner, low: int | CharSet, high: int | CharSet, position: int) -> CharSet:
    spelled = scanner.source[position : scanner.position]
    if isinstance(low, CharSet) or isinstance(high, CharSet):
        raise scanner.invalid(f"the range {spelled!r} has a class as an end", position)
    if low > high:
        raise scanner.invalid(f"the range {spelled!r} is reversed", position)
    return CharSet(((low, high),))
