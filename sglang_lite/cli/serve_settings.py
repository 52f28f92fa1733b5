"""Where each setting of a server comes from: flag before variable before file before default; it starts nothing."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from sglang_lite.cli.serve_flags import FLAGS, Flag, flag_name
from sglang_lite.errors import RequestError, UnsupportedError
from sglang_lite.runtime.config import REFUSED, EngineConfig
from sglang_lite.runtime.server.config import SERVER_REFUSED, ServerConfig

PRECEDENCE = (
    "a flag goes before a variable (SGLANG_LITE_PORT), that before the file of --config, that before the default"
)

_TAKEN = frozenset({"api_key", "backend", "compat", "cache"})
"""Settings whose variable means something else: the key for a server that a program talks to, and so on."""

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
_BY_SETTING = {flag.setting: flag for flag in FLAGS.values()}


@dataclass(frozen=True, slots=True)
class Given:
    """A value and who gave it."""

    value: Any
    origin: str


@dataclass(frozen=True)
class Settings:
    """All that was given. `engine`: of `EngineConfig`, without defaults. `without_effect`: flags that tune nothing here."""

    engine: dict[str, Any]
    server: ServerConfig
    without_effect: list[str]
    given: dict[str, Given] = field(default_factory=dict[str, Given])

    def lines(self) -> list[str]:
        """Every setting with its value and origin, for `--print-config`."""
        rows: list[tuple[str, str, str]] = []
        for config in (EngineConfig, ServerConfig):
            for f in fields(config):
                if f.name == "api_keys":
                    continue
                given = self.given.get(f.name, Given(f.default, "default"))
                rows.append((f.name, repr(given.value), given.origin))
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return [
            f"# {PRECEDENCE}",
            *(f"{name:{widths[0]}}  {value:{widths[1]}}  # {origin}" for name, value, origin in rows),
        ]


def resolve(args: argparse.Namespace, variables: Mapping[str, str], file: str | None = None) -> Settings:
    """Put together what flags, variables and a file say.

    Raises:
        UnsupportedError: a setting whose meaning would be lost; with the remedy.
        RequestError: an unknown or wrong one.
    """
    given: dict[str, Given] = {}
    if file is not None:
        given |= from_file(file)
    given |= from_variables(variables)
    for dest, value in vars(args).items():
        if ":" in dest and value is not None:
            setting = dest.partition(":")[2]
            given[setting] = Given(value, "flag")
    return settled(given)


def settled(given: dict[str, Given], **server_only: Any) -> Settings:
    """Settings from values by name; `server_only`: fields of `ServerConfig` that are no flags.

    Raises:
        UnsupportedError, RequestError: as `resolve`.
    """
    values: dict[str, dict[str, Any]] = {"engine": {}, "server": {}, "without effect": {}, "refused": {}}
    for setting, one in given.items():
        values[_BY_SETTING[setting].kind][setting] = one.value
    remedies = REFUSED | SERVER_REFUSED
    for setting, value in values["refused"].items():
        if value not in (["1"], ["none"], 1, None, False):  # one device, one replica: what is here anyway
            raise UnsupportedError(f"serving: {flag_name(setting)} is not supported: {remedies[setting]}")
    server = {name: tuple(value) if isinstance(value, list) else value for name, value in values["server"].items()}
    return Settings(
        values["engine"],
        ServerConfig(**server, **server_only),
        [flag_name(name) for name in values["without effect"]],
        given,
    )


def from_variables(variables: Mapping[str, str]) -> dict[str, Given]:
    """`SGLANG_LITE_<SETTING>`; lists are parted by commas, switches are 1 or 0.

    Raises:
        RequestError: a value of a wrong kind.
    """
    found: dict[str, Given] = {}
    for setting, flag in _BY_SETTING.items():
        name = f"SGLANG_LITE_{setting.upper()}"
        text = variables.get(name)
        if text and setting not in _TAKEN:
            found[setting] = Given(_from_text(flag, text, name), f"variable {name}")
    return found


def from_file(path: str) -> dict[str, Given]:
    """A YAML (or JSON) file: an object of settings, by the names of their flags, with `_` or `-`.

    Raises:
        RequestError: it cannot be read, or a key or value is wrong; with what it might have been.
    """
    import yaml  # PyYAML: only where a file is given

    try:
        content: object = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        text = " ".join(str(error).split())
        raise RequestError(f"reading the settings in {path!r}: {type(error).__name__}: {text}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise RequestError(
            f"reading the settings in {path!r}: got {type(content).__name__}, expected 'name: value' lines"
        )
    return from_mapping(cast("dict[object, Any]", content), path, f"file {path}")


def from_mapping(content: Mapping[Any, Any], what: str, origin: str) -> dict[str, Given]:
    """Settings by name, with values of their kinds.

    Raises:
        RequestError: an unknown name, with the nearest known ones, or a wrong value.
    """
    found: dict[str, Given] = {}
    for key, value in content.items():
        name = str(key).replace("-", "_")
        flag = _BY_SETTING.get(name) or FLAGS.get("--" + name.replace("_", "-"))
        if flag is None:
            near = difflib.get_close_matches(name, list(_BY_SETTING), 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; sglang-lite serve --print-config lists all"
            raise RequestError(f"reading the settings in {what!r}: unknown {str(key)!r}{hint}")
        if value is not None:
            found[flag.setting] = Given(_checked(flag, value, f"{what!r}: {key}"), origin)
    return found


def _checked(flag: Flag, value: Any, what: str) -> Any:
    """A value of a file, as its flag would give it."""
    if flag.kind in ("without effect", "refused"):
        return value
    items: list[Any] = list(cast("list[Any]", value)) if flag.is_list and isinstance(value, list | tuple) else [value]
    kind: type = bool if flag.parse is None else cast("type", flag.parse)
    for item in items:
        is_right = isinstance(item, kind) or (kind is float and isinstance(item, int))
        if not is_right or (isinstance(item, bool) and kind is not bool):
            raise RequestError(
                f"reading the settings in {what}: got {item!r}, expected a value of type {kind.__name__}"
            )
    return items if flag.is_list else value


def _from_text(flag: Flag, text: str, name: str) -> Any:
    if flag.kind in ("without effect", "refused"):
        return [text]
    if flag.parse is None:
        if text.lower() not in (*_TRUE, *_FALSE):
            raise RequestError(f"reading {name}: got {text!r}, expected 1 or 0")
        return text.lower() in _TRUE
    try:
        if flag.is_list:
            return [flag.parse(part.strip()) for part in text.split(",") if part.strip()]
        return flag.parse(text)
    except ValueError:
        raise RequestError(f"reading {name}: got {text!r}, expected a number") from None
