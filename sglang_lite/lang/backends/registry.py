"""From a name to a backend, and the default one; it knows schemes and factories, not what they make.

A string is `SCHEME` or `SCHEME:REST`; a URL is one. One string is one object for the process, shut down at its end.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

from sglang_lite import env
from sglang_lite.errors import RequestError
from sglang_lite.lang.backends.hosted import anthropic_api, litellm_api, openai_api
from sglang_lite.lang.backends.remote import RuntimeEndpoint
from sglang_lite.lang.backends.scripted import ScriptedBackend
from sglang_lite.request_tree import Backend

BackendFactory: TypeAlias = Callable[[str], Backend]
"""Makes a backend from what follows `SCHEME:`, which may be empty."""

_lock = threading.RLock()
_factories: dict[str, BackendFactory] = {}
_named: dict[str, Backend] = {}
_default: Backend | None = None
_scoped: ContextVar[Backend | None] = ContextVar("sglang_lite_backend", default=None)
_set_here: ContextVar[tuple[Backend, str | None] | None] = ContextVar("sglang_lite_default", default=None)
"""What `set_default_backend` was given in this thread or task, and the string if it was one."""


def register_backend(scheme: str, factory: BackendFactory) -> None:
    """Let strings `scheme` and `scheme:...` name what `factory` makes; a later one replaces an earlier one."""
    if not scheme or ":" in scheme:
        raise RequestError(f"registering a backend: got scheme {scheme!r}, expected a word without ':'")
    with _lock:
        _factories[scheme] = factory


def _make_scripted(rest: str) -> Backend:
    return ScriptedBackend.from_file(rest) if rest else ScriptedBackend()


register_backend("scripted", _make_scripted)
register_backend("http", lambda rest: RuntimeEndpoint(f"http:{rest}"))
register_backend("https", lambda rest: RuntimeEndpoint(f"https:{rest}"))
register_backend("openai", openai_api.from_string)
register_backend("anthropic", anthropic_api.from_string)
register_backend("litellm", litellm_api.from_string)


def _named_backend(name: str) -> Backend:
    with _lock:
        if name not in _named:
            scheme, _, rest = name.partition(":")
            factory = _factories.get(scheme)
            if factory is None:
                raise RequestError(
                    f"finding the backend {name!r}: unknown scheme {scheme!r}, expected one of {sorted(_factories)}, "
                    "as in 'scripted:replies.json'"
                )
            _named[name] = factory(rest)
        return _named[name]


def as_backend(backend: object) -> Backend:
    """A backend from an object, a string, or an object whose `endpoint` is a backend.

    Raises:
        RequestError: it is none of these, or the string names nothing.
    """
    if isinstance(backend, str):
        return _named_backend(backend)
    if not isinstance(backend, Backend):
        backend = getattr(backend, "endpoint", backend)
    if not isinstance(backend, Backend):
        raise RequestError(
            f"finding the backend: got {backend!r}, expected a backend object, or a string such as 'local', "
            "'local:PATH', 'http://host:port' or 'scripted:FILE'"
        )
    return backend


def resolve_backend(backend: object = None) -> Backend:
    """The backend to run on: the given one, that of the scope, the default set in this thread or task, that of the process,
    `SGLANG_LITE_BACKEND`, a new `local`.

    The last two become the default; the last is announced on stderr.
    """
    global _default
    found = (_scoped.get() or _own_default()) if backend is None else as_backend(backend)
    if found is not None:
        return found
    with _lock:
        if _default is None:
            name = env.backend()
            if name is None:
                name = "local"
                sys.stderr.write(
                    "sglang_lite: no backend was set; starting 'local' in this process "
                    "(set_default_backend(...) or SGLANG_LITE_BACKEND chooses another)\n"
                )
            _default = _named_backend(name)
        return _default


def current_backend() -> Backend | None:
    """The backend that `resolve_backend()` would find, without making one; None where there is none yet."""
    return _scoped.get() or _own_default() or _default


def _own_default() -> Backend | None:
    """The default that was set in this thread or task; one that a string named and that was shut down since is none."""
    found = _set_here.get()
    if found is None:
        return None
    backend, name = found
    return backend if name is None or _named.get(name) is backend else None


def set_default_backend(backend: object) -> None:
    """Run on `backend` (an object or a string) wherever nothing else is said; None: forget the default.

    It holds in this thread or task whatever others set, and in all that have set none of their own.
    """
    global _default
    found = None if backend is None else as_backend(backend)
    _set_here.set(None if found is None else (found, backend if isinstance(backend, str) else None))
    with _lock:
        _default = found


@contextmanager
def backend_scope(backend: object) -> Generator[Backend]:
    """Inside the block (of this thread or task) `backend` is the default; bodies run in the scope of their backend."""
    found = as_backend(backend)
    token = _scoped.set(found)
    try:
        yield found
    finally:
        _scoped.reset(token)


def flush_cache(backend: object = None) -> bool:
    """Forget the reusable prefixes of a backend (None: the default); False where there is none."""
    found = current_backend() if backend is None else as_backend(backend)
    return False if found is None else found.flush_cache()


def get_server_info(backend: object = None) -> dict[str, Any] | None:
    """The configuration and counters of a backend (None: the default); None where there is none."""
    found = current_backend() if backend is None else as_backend(backend)
    return None if found is None else found.get_server_info()


@atexit.register
def shutdown_named_backends() -> None:
    """Shut down every backend that a string made, and forget it."""
    global _default
    with _lock:
        named = list(_named.values())
        _named.clear()
        if any(_default is backend for backend in named):
            _default = None
    for backend in named:
        backend.shutdown()
