"""What a user may set for a server: names, defaults and checks; it knows no route."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sglang_lite import env
from sglang_lite.errors import RequestError

DEFAULT_PORT = 30000

# Flags of SGLang's server that tune or log what does not exist here; they are taken, with one warning that names them.
SERVER_WITHOUT_EFFECT = (
    "bucket_e2e_request_latency",
    "bucket_inter_token_latency",
    "bucket_time_to_first_token",
    "collect_tokens_histogram",
    "crash_dump_folder",
    "decode_log_interval",
    "enable_cache_report",
    "enable_metrics",
    "enable_metrics_for_all_schedulers",
    "enable_request_time_stats_logging",
    "file_storage_path",
    "gc_warning_threshold_secs",
    "log_level_http",
    "log_requests",
    "nccl_port",
    "skip_server_warmup",
    "tokenizer_mode",
    "tokenizer_worker_num",
    "warmups",
)

# Flags whose meaning would be lost if they were ignored, with what to do instead.
SERVER_REFUSED = {
    "admin_api_key": "keys on a command line are seen by every user of the machine; use --admin-api-key-file",
    "api_key": "keys on a command line are seen by every user of the machine; use --api-key-file or --api-key-env",
    "chat_template": "the model's own template is used; leave it out",
    "completion_template": "completions take the prompt as it is; leave it out",
    "grpc_mode": "the server speaks HTTP; leave it out",
    "hf_chat_template_name": "the model's own template is used; leave it out",
    "is_embedding": "this server generates; leave it out",
    "kv_events_config": "events of the cache are not published; leave it out",
    "revision": "models are local files; leave it out",
    "tokenizer_path": "the model file brings its own tokenizer; leave it out",
    "tool_server": "tools run at the client; leave it out",
}


_ONE_OF: dict[str, tuple[str | int, ...]] = {
    "log_level": ("debug", "info", "warning", "error", "critical"),
    "log_format": ("text", "json"),
    "log_requests_level": (0, 1, 2, 3),
}


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Settings of one server.

    `served_model_name` None: the name of the model file. `api_keys`, `api_key_file` (one key a line, `#` begins a comment),
    `api_key_env` (names of variables): keys that open every route; none at all: no key is asked for. `cors_origins`: origins
    whose pages may call the server from a browser. `max_body_bytes`, `max_batch` (prompts times `n` of one request), `max_n`,
    `max_programs` (that run at a time), `max_ops` (of one program) are refused above. `body_timeout_s`: a request whose
    body takes longer is given up. `heartbeat_s`: silence after which a stream carries a comment. `program_ttl_s`: how long
    a program lives without a reader. `drain_delay_s`, `drain_deadline_s`: after SIGTERM, how long new requests are still
    taken, and how long running ones may go on after that. `restart`: start the scheduler process again after it died.
    `cache_isolation` `key`: requests reuse cached prefixes of their own API key only.
    `viewer`: the page at `/`: `off`, `stats` (numbers only), `full`; None: `full` on loopback, else `off`. `admin_key_file`,
    `admin_key_env`: keys for whom texts of others are shown there.
    `log_level`, `log_format`, `log_requests_level`: what the log says and how (0: sizes; 1: also parameters; 2: also the
    begin of texts; 3: whole texts). `otlp_endpoint`: where spans go. `profile_folder`: where profiles are written; None:
    the folder of temporary files.
    `schema_in_prompt`: whether chats show the model the schema of `response_format`: `never`, `always`, or `auto`: where the
    messages lack it.
    `watchdog_timeout_s`: without a step for so long, with work to do, the server is no longer alive (`/livez`).
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    served_model_name: str | None = None
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    api_key_file: str | None = None
    api_key_env: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    max_body_bytes: int = 8 << 20
    max_batch: int = 256
    max_n: int = 128
    max_programs: int = 1024
    max_ops: int = 100_000
    body_timeout_s: float = 30.0
    heartbeat_s: float = 10.0
    program_ttl_s: float = 10.0
    drain_delay_s: float = 0.0
    drain_deadline_s: float = 10.0
    restart: bool = False
    watchdog_timeout_s: float = 60.0
    viewer: str | None = None
    cache_isolation: str = "none"
    schema_in_prompt: str = "auto"
    admin_key_file: str | None = None
    admin_key_env: tuple[str, ...] = ()
    log_level: str = "info"
    log_format: str = "text"
    log_requests_level: int = 0
    otlp_endpoint: str | None = None
    profile_folder: str | None = None

    def __post_init__(self) -> None:
        """Check every setting; the message names it, the value and what is allowed."""
        if not 0 <= self.port <= 65535:
            raise RequestError(f"configuring the server: port={self.port!r}, expected 0 (any free one) to 65535")
        if self.cache_isolation not in ("none", "key"):
            raise RequestError(
                f"configuring the server: cache_isolation={self.cache_isolation!r}, expected none, or key: requests of one "
                "API key share nothing with those of another"
            )
        if self.viewer not in (None, "off", "stats", "full"):
            raise RequestError(f"configuring the server: viewer={self.viewer!r}, expected off, stats or full")
        self._check_choices()
        for name in ("max_body_bytes", "max_batch", "max_n", "max_programs", "max_ops"):
            if getattr(self, name) < 1:
                raise RequestError(f"configuring the server: {name}={getattr(self, name)!r}, expected at least 1")
        for name in ("body_timeout_s", "heartbeat_s", "watchdog_timeout_s"):
            if not getattr(self, name) > 0:
                raise RequestError(f"configuring the server: {name}={getattr(self, name)!r}, expected above 0")
        for name in ("program_ttl_s", "drain_delay_s", "drain_deadline_s"):
            if not getattr(self, name) >= 0:
                raise RequestError(f"configuring the server: {name}={getattr(self, name)!r}, expected at least 0")

    def _check_choices(self) -> None:
        for name, allowed in _ONE_OF.items():
            if getattr(self, name) not in allowed:
                raise RequestError(
                    f"configuring the server: {name}={getattr(self, name)!r}, expected one of {', '.join(map(str, allowed))}"
                )
        if self.schema_in_prompt not in ("auto", "never", "always"):
            raise RequestError(
                f"configuring the server: schema_in_prompt={self.schema_in_prompt!r}, expected auto, never or always"
            )

    def read_keys(self) -> frozenset[bytes]:
        """All keys, read again at each call.

        Raises:
            RequestError: a file or variable is missing or has no key; no key is ever part of a message.
        """
        keys = _keys_of(self.api_keys, self.api_key_file, self.api_key_env)
        return keys | self.read_admin_keys() if keys else keys

    def read_admin_keys(self) -> frozenset[bytes]:
        """The keys of those who run the server; they open every route, too.

        Raises:
            RequestError: as `read_keys`.
        """
        return _keys_of((), self.admin_key_file, self.admin_key_env)


def _keys_of(given: tuple[str, ...], file: str | None, variables: tuple[str, ...]) -> frozenset[bytes]:
    keys = list(given)
    if file is not None:
        keys += _keys_in(file)
    for name in variables:
        value = env.variable(name)
        if not value:
            raise RequestError(f"reading API keys: the variable {name} is not set, expected a key in it")
        keys.append(value)
    if any(not key.strip() for key in keys):
        raise RequestError("reading API keys: one is empty, expected at least one character")
    return frozenset(key.encode() for key in keys)


def _keys_in(path: str) -> list[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(
            f"reading API keys: the file {path!r}: {type(error).__name__}; give a readable text file"
        ) from None
    keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not keys:
        raise RequestError(f"reading API keys: the file {path!r} has none, expected one key a line")
    return keys
