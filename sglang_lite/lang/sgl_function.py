"""`SglFunction`: a decorated program and the ways to run it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import replace
from typing import Any, overload

from sglang_lite.errors import ProgramError, RequestError
from sglang_lite.lang import batch
from sglang_lite.lang.backends.registry import resolve_backend
from sglang_lite.lang.batch_out import Row, run_to_file
from sglang_lite.lang.options import RunOptions
from sglang_lite.lang.prefix import cache_prefix
from sglang_lite.lang.progress import ProgressBar
from sglang_lite.lang.results import BatchReport, RowKeys
from sglang_lite.lang.runner import Call, prepared, refuse_in_async_body, run, run_async, run_streaming
from sglang_lite.lang.sampling import RunDefaults, run_defaults
from sglang_lite.lang.state import ProgramState
from sglang_lite.lang.symbols import SglArgument
from sglang_lite.lang.template import templates_of
from sglang_lite.lang.template_batch import iterate_templates
from sglang_lite.lang.tracer import TracerProgramState, current_trace, trace
from sglang_lite.request_tree import Backend

MAX_IN_FLIGHT = 256
"""Rows of a batch with `out` that are held at a time; more keep no backend busier."""

_SAMPLING = (
    "max_new_tokens",
    "n",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "ignore_eos",
    "return_logprob",
    "logprob_start_len",
    "top_logprobs_num",
    "return_text_in_logprobs",
)


class SglFunction:
    """A program: a function whose first parameter is `s`, the state that it appends to.

    Args:
        num_api_spec_tokens: used by hosted APIs only.
        bind_arguments: arguments that are always given.
        options: for runs that name none.
        lazy: in the body `s[name]` gives a reference: appending it waits for nothing, anything else does.
        pure: the body does nothing but append, and depends on its arguments alone. It is lazy, and where it can be
            followed without values `run_batch` sends it once, with rows of arguments.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        num_api_spec_tokens: int | None = None,
        bind_arguments: Mapping[str, Any] | None = None,
        options: RunOptions | None = None,
        *,
        lazy: bool = False,
        pure: bool = False,
    ) -> None:
        self.func = func
        self.is_lazy = lazy or pure
        self.is_pure = pure
        self.num_api_spec_tokens = num_api_spec_tokens
        self.bind_arguments: dict[str, Any] = dict(bind_arguments or {})
        self.options = options or RunOptions()
        self.__name__: str = getattr(func, "__name__", type(func).__name__)
        self.__doc__ = func.__doc__
        self._signature = inspect.signature(func)
        parameters = list(self._signature.parameters)
        if parameters[:1] != ["s"]:
            raise ProgramError(
                f"decorating {self.__name__}: its first parameter is {(parameters or ['missing'])[0]!r}, expected 's', "
                "the state (methods are not supported)"
            )
        self.arg_names = parameters[1:]

    def __call__(self, *args: Any, **kwargs: Any) -> ProgramState:
        """The same as `run`: inside another program it runs on a state of its own."""
        return self.run(*args, **kwargs)

    def bind(self, **kwargs: Any) -> SglFunction:
        """A copy to which these arguments are always given; they win over a run's own.

        Raises:
            RequestError: the function has no such parameter.
        """
        self._check_names("binding", kwargs)
        return self._with(self.bind_arguments | kwargs, self.options)

    def with_options(self, options: RunOptions | None = None, **changes: Any) -> SglFunction:
        """A copy with other options for its runs: `f.with_options(seed=1)` or `f.with_options(RunOptions(...))`."""
        options = replace(options or self.options, **changes)
        return self._with(self.bind_arguments, options)

    def _with(self, bind_arguments: dict[str, Any], options: RunOptions) -> SglFunction:
        return SglFunction(
            self.func, self.num_api_spec_tokens, bind_arguments, options, lazy=self.is_lazy, pure=self.is_pure
        )

    def run(  # noqa: PLR0913 - the names and defaults are SGLang's
        self,
        *args: Any,
        max_new_tokens: int | None = 128,
        n: int = 1,
        stop: str | list[str] | None = None,
        stop_token_ids: list[int] | None = None,
        stop_regex: str | list[str] | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = -1,
        min_p: float = 0.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        ignore_eos: bool = False,
        return_logprob: bool | None = None,
        logprob_start_len: int | None = None,
        top_logprobs_num: int | None = None,
        return_text_in_logprobs: bool | None = None,
        stream: bool = False,
        backend: object = None,
        use_thread: bool = True,
        **kwargs: Any,
    ) -> ProgramState:
        """Run the program on `args` and `kwargs`; the sampling arguments are defaults for its gens.

        Returns when everything is done; with `stream=True` at once. `options=RunOptions(...)` gives further options,
        unless the program has a parameter of that name. `use_thread` changes nothing: no state needs a thread.

        Raises:
            RequestError: an argument is not allowed.
            Exception: what the body raised, or the first failed op's error (see `RunOptions.on_error`).
        """
        defaults = run_defaults(
            max_new_tokens=max_new_tokens,
            n=n,
            stop=stop,
            stop_token_ids=stop_token_ids,
            stop_regex=stop_regex,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
            ignore_eos=ignore_eos,
            return_logprob=return_logprob,
            logprob_start_len=logprob_start_len,
            top_logprobs_num=top_logprobs_num,
            return_text_in_logprobs=return_text_in_logprobs,
        )
        options = self.options
        if "options" not in self.arg_names and isinstance(kwargs.get("options"), RunOptions):
            options = kwargs.pop("options")
        if current_trace.get() is not None:
            return trace(self.func, self.__name__, args, {**kwargs, **self.bind_arguments}, defaults)
        call = self._call(args, kwargs, resolve_backend(backend), defaults, options)
        return run_streaming(call) if stream else run(call)

    async def run_async(self, *args: Any, **kwargs: Any) -> ProgramState:
        """As `run`, for `await`: takes the same arguments (`stream` and `use_thread` have no meaning here).

        An `async def` body runs on the caller's event loop, another one on a thread. A cancelled `await` cancels the
        program.

        Raises:
            Exception: as `run`.
        """
        given = {name: kwargs.pop(name) for name in _SAMPLING if name in kwargs}
        backend = kwargs.pop("backend", None)
        options = self.options
        if "options" not in self.arg_names and isinstance(kwargs.get("options"), RunOptions):
            options = kwargs.pop("options")
        return await run_async(self._call(args, kwargs, resolve_backend(backend), run_defaults(**given), options))

    def trace(self, *, backend: object = None, **kwargs: Any) -> TracerProgramState:
        """Run the body on symbols, without a backend: `.tree` has all that it would append, `str()` shows it.

        An argument that is not given is a symbol, one with a default value too. A symbol can be appended; where the
        body asks more of it the trace ends, and `.open_because` says the line and why. `backend` is not used.

        Raises:
            RequestError: the function has no such parameter.
            ProgramError: the body uses the language wrongly.
        """
        self._check_names("tracing", kwargs)
        symbols = {name: SglArgument(name) for name in self._named_parameters()}
        return trace(self.func, self.__name__, (), {**symbols, **kwargs, **self.bind_arguments})

    def cache(self, backend: object = None) -> None:
        """Compute what every run begins with, so that the first run finds it cached; without such text: nothing.

        Raises:
            Exception: the backend's error.
        """
        cache_prefix(self.trace(), resolve_backend(backend))

    @overload
    def run_batch(
        self, batch_kwargs: Iterable[Any], *, out: None = None, **kwargs: Any
    ) -> list[ProgramState] | Iterator[ProgramState]: ...
    @overload
    def run_batch(self, batch_kwargs: Iterable[Any], *, out: str | os.PathLike[str], **kwargs: Any) -> BatchReport: ...
    def run_batch(  # noqa: PLR0913 - the names and defaults are SGLang's; # pyright: ignore[reportInconsistentOverload] - the overloads leave them to it
        self,
        batch_kwargs: Iterable[Any],
        *,
        max_new_tokens: int | None = 128,
        n: int = 1,
        stop: str | list[str] | None = None,
        stop_token_ids: list[int] | None = None,
        stop_regex: str | list[str] | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = -1,
        min_p: float = 0.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        ignore_eos: bool = False,
        return_logprob: bool | None = None,
        logprob_start_len: int | None = None,
        top_logprobs_num: int | None = None,
        return_text_in_logprobs: bool | None = None,
        backend: object = None,
        num_threads: int | str = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        options: RunOptions | None = None,
        out: str | os.PathLike[str] | None = None,
        resume: bool = False,
        ordered: bool = False,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> list[ProgramState] | Iterator[ProgramState] | BatchReport:
        """Run the program once for each row: a dict of arguments, or a tuple or list of them by position.

        Returns the states in the order of the rows (with `generator_style` an iterator that starts at most 200 rows
        ahead). A row that fails, in its body or on the backend, harms no other and raises nothing here: its state has
        the error (`state.error()`), and reading from it raises it.

        With `out` each row is written to that file as it ends, as one JSON line (`row`, `key`, `arguments`, `variables`,
        `ret_value`, `error`), and a `BatchReport` is returned. The rows may be any iterable: at most `max_in_flight` of
        them are held at a time. With `resume` rows that are in the file already, by program source, arguments, model
        and sampling, are not run again. `ordered` writes them in the order of the rows. Ctrl-C ends the batch and
        returns the report of what is done.

        Raises:
            RequestError: rows or sampling arguments are wrong; nothing was started.
            KeyboardInterrupt: Ctrl-C; all rows were cancelled.
        """
        defaults = run_defaults(
            max_new_tokens=max_new_tokens,
            n=n,
            stop=stop,
            stop_token_ids=stop_token_ids,
            stop_regex=stop_regex,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
            ignore_eos=ignore_eos,
            return_logprob=return_logprob,
            logprob_start_len=logprob_start_len,
            top_logprobs_num=top_logprobs_num,
            return_text_in_logprobs=return_text_in_logprobs,
        )
        limit = batch.thread_limit(num_threads)
        if out is not None:
            bar = ProgressBar(len(batch_kwargs)) if progress_bar and isinstance(batch_kwargs, Sized) else None
            to_write = self._rows_to_write(batch_kwargs, resolve_backend(backend), defaults, options or self.options)
            return run_to_file(to_write, out, resume, limit, max_in_flight, ordered, bar)
        rows = [self._row(number, row) for number, row in enumerate(batch_kwargs)]
        if not rows:
            return []
        if current_trace.get() is not None:
            return [trace(self.func, self.__name__, (), {**row, **self.bind_arguments}, defaults) for row in rows]
        found = resolve_backend(backend)
        calls = [self._call((), row, found, defaults, options or self.options) for row in rows]
        return self._run_calls(calls, limit, progress_bar, generator_style)

    def _run_calls(
        self, calls: list[Call], limit: int, progress_bar: bool, generator_style: bool
    ) -> list[ProgramState] | Iterator[ProgramState]:
        refuse_in_async_body(calls[0])
        states = self._iterate_pure(calls, progress_bar)
        if states is not None:
            return states if generator_style else list(states)
        return (batch.iterate_batch if generator_style else batch.run_batch)(calls, limit, progress_bar)

    def _iterate_pure(self, calls: list[Call], progress_bar: bool) -> Iterator[ProgramState] | None:
        """The rows of a pure program as those of its template; None: they are run one by one."""
        templates = templates_of(calls) if self.is_pure else None
        return None if templates is None else iterate_templates(calls, templates, progress_bar)

    def _call(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], backend: Any, defaults: RunDefaults, options: RunOptions
    ) -> Call:
        given = {**kwargs, **self.bind_arguments}
        try:
            self._signature.bind(None, *args, **given)
        except TypeError as error:
            reserved = sorted(set(self.arg_names) & set(inspect.signature(SglFunction.run).parameters))
            hint = f"; run() has parameters of its own named {reserved}: pass these by position" if reserved else ""
            raise TypeError(f"calling {self.__name__}({', '.join(self.arg_names)}): {error}{hint}") from None
        return Call(
            self.func, args, given, prepared(backend, self.num_api_spec_tokens), defaults, options, self.is_lazy
        )

    def _rows_to_write(
        self, rows: Iterable[Any], backend: Backend, defaults: RunDefaults, options: RunOptions
    ) -> Iterator[Row]:
        """The rows with their keys, read as they are wanted."""
        info = backend.get_server_info()
        model = str(info.get("model_path") or info.get("backend") or type(backend).__name__)
        keys = RowKeys(self.func, model, defaults, options.seed)
        for number, given in enumerate(rows):
            call = self._call((), self._row(number, given), backend, defaults, options)
            refuse_in_async_body(call)
            yield Row(number, keys.next(number, call.kwargs), call)

    def _row(self, number: int, row: Any) -> dict[str, Any]:
        """A row as a dict of its own."""
        what = f"reading row {number} of a batch of {self.__name__}"
        if isinstance(row, Mapping):
            named: dict[str, Any] = dict(row)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(row, tuple | list):
            values: list[Any] = list(row)  # pyright: ignore[reportUnknownArgumentType]
            free = [name for name in self.arg_names if name not in self.bind_arguments]
            if len(values) > len(free):
                raise RequestError(f"{what}: got {len(values)} values, expected at most {len(free)}: {free}")
            named = dict(zip(free, values, strict=False))
        else:
            raise RequestError(f"{what}: got {row!r}, expected a dict, or a tuple or list of values")
        try:
            self._signature.bind(None, **{**named, **self.bind_arguments})
        except TypeError as error:
            raise RequestError(f"{what}: {error}; the parameters are {self.arg_names}") from None
        return named

    def _named_parameters(self) -> list[str]:
        """What can be given by name, `s` and collectors left out."""
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return [p.name for p in list(self._signature.parameters.values())[1:] if p.kind in kinds]

    def _check_names(self, what: str, names: Iterable[str]) -> None:
        takes_any = any(p.kind is p.VAR_KEYWORD for p in self._signature.parameters.values())
        unknown = sorted(set(names) - set(self.arg_names))
        if unknown and not takes_any:
            raise RequestError(f"{what} arguments of {self.__name__}: unknown {unknown}, known are {self.arg_names}")
