"""The formats that are enforced, as languages of characters; a format that is not here is an annotation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from sglang_lite.grammar.json_schema.patterns import pattern_language
from sglang_lite.grammar.syntax import Node


@dataclass(frozen=True, slots=True)
class Format:
    """The texts of a format; `narrowed` says which valid ones are left out, None if none is."""

    language: Node
    narrowed: str | None = None


_YEAR_DATE = (
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,12}})?(?:Z|[+-]{_CLOCK})"
_TIME_PARTS = r"(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DATE_PARTS = r"(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_DURATION = rf"P(?:[0-9]+W|{_DATE_PARTS}(?:T{_TIME_PARTS})?|T{_TIME_PARTS})"
_LABEL = r"[A-Za-z0-9](?:-?[A-Za-z0-9]){0,25}"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL}){{0,3}}"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
_EMAIL = rf"{_ATOM}(?:\.{_ATOM}){{0,2}}@{_HOSTNAME}"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_HEX = r"[0-9A-Fa-f]{1,4}"
_LAST_32 = rf"(?:{_HEX}:{_HEX}|{_IPV4})"
_IPV6 = "|".join(
    [
        rf"(?:{_HEX}:){{6}}{_LAST_32}",
        rf"::(?:{_HEX}:){{5}}{_LAST_32}",
        *(rf"(?:(?:{_HEX}:){{0,{before}}}{_HEX})?::(?:{_HEX}:){{{4 - before}}}{_LAST_32}" for before in range(5)),
        rf"(?:(?:{_HEX}:){{0,5}}{_HEX})?::{_HEX}",
        rf"(?:(?:{_HEX}:){{0,6}}{_HEX})?::",
    ]
)
_PERCENT = r"%[0-9A-Fa-f]{2}"
_PCHAR = rf"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|{_PERCENT})"
_AUTHORITY = (
    rf"(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|{_PERCENT})*@)?"
    rf"(?:\[(?:{_IPV6})\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|{_PERCENT})*)(?::[0-9]*)?"
)
_SEGMENTS = rf"(?:/{_PCHAR}*)*"
_ABSOLUTE = rf"/(?:{_PCHAR}+{_SEGMENTS})?"
_TAIL = rf"(?:\?(?:{_PCHAR}|[/?])*)?(?:#(?:{_PCHAR}|[/?])*)?"
_URI = rf"[A-Za-z][A-Za-z0-9+.-]*:(?://{_AUTHORITY}{_SEGMENTS}|{_ABSOLUTE}|{_PCHAR}+{_SEGMENTS}|){_TAIL}"
_NO_COLON = rf"(?:[A-Za-z0-9._~!$&'()*+,;=@-]|{_PERCENT})+"
_RELATIVE = rf"(?://{_AUTHORITY}{_SEGMENTS}|{_ABSOLUTE}|{_NO_COLON}{_SEGMENTS}|){_TAIL}"
_POINTER = r"(?:/(?:[^~/]|~[01])*)*"
_HOST_LIMITS = (
    "host names of more than four labels, labels of more than 26 letters and digits or with two hyphens in a row"
)
_PATTERNS: dict[str, tuple[str, str | None]] = {
    "date": (_YEAR_DATE, None),
    "time": (_TIME, "leap seconds, a lower-case z, more than 12 digits behind the point"),
    "date-time": (f"{_YEAR_DATE}T{_TIME}", "leap seconds, lower-case t and z, more than 12 digits behind the point"),
    "duration": (_DURATION, None),
    "email": (_EMAIL, f"quoted local parts, atoms of more than 20 characters, more than three atoms, {_HOST_LIMITS}"),
    "idn-email": (_EMAIL, "all but ASCII addresses"),
    "hostname": (_HOSTNAME, _HOST_LIMITS),
    "idn-hostname": (_HOSTNAME, "all but ASCII names"),
    "ipv4": (_IPV4, None),
    "ipv6": (_IPV6, None),
    "uri": (_URI, "IP literals of future versions"),
    "uri-reference": (f"(?:{_URI}|{_RELATIVE})", "IP literals of future versions"),
    "iri": (_URI, "all but ASCII identifiers"),
    "iri-reference": (f"(?:{_URI}|{_RELATIVE})", "all but ASCII references"),
    "uri-template": (
        rf"(?:[A-Za-z0-9._~!$&()*+,;=:@/?#-]|{_PERCENT}|\{{[A-Za-z0-9_]+\}})*",
        "all expressions but single plain variables",
    ),
    "uuid": (r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}", None),
    "json-pointer": (_POINTER, None),
    "relative-json-pointer": (rf"(?:0|[1-9][0-9]*)(?:#|{_POINTER})", None),
    "regex": (r"[A-Za-z0-9_ ]*", "all expressions but plain words"),
}
KNOWN_FORMATS = frozenset(_PATTERNS)


@cache
def format_language(name: str) -> Format | None:
    """The texts of the format `name`; None if it is not enforced."""
    found = _PATTERNS.get(name)
    if found is None:
        return None
    return Format(pattern_language(f"^(?:{found[0]})$"), found[1])
