"""The settings: their names, allowed values and meanings, and their values in this process.

:class:`Settings` is the table, and each sink in :data:`DECLARING` has another one. Each of their fields is an
environment variable, ``RAY_TRACING_`` and the name in capitals, and a key of the YAML file that
``RAY_TRACING_CONFIG`` names. A variable takes precedence over the file, and the file over the default. An empty value
counts as unset. Nothing is read when this module is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, NoReturn, TypeVar

from ray_tracing_hooks._libraries import LIBRARIES
from ray_tracing_hooks._settings.values import (
    BOOLEAN,
    FOLDER,
    GROUP,
    LEVEL,
    LISTENING,
    NAMES,
    PATH,
    PATTERNS,
    PLACE,
    RATES,
    SECONDS,
    SESSION,
    SIZE,
    TRACE_URL,
    Given,
    Kind,
    any_of,
    choose,
    copied,
    empty,
    hint,
    latest_session,
    shown,
    table_of_settings,
)

PREFIX = "RAY_TRACING_"
_CONFIG = "config"
_NAME = r"[\w.-]{1,50}"

_PARTS = ("task", "actor", "job", *(library.part for library in LIBRARIES))
"""The parts of Ray that make spans by default."""

_ALL_PARTS = (*_PARTS, "get", "wait", "put")

T = TypeVar("T")
D = TypeVar("D")


class Setting:
    """One row of a table. A ``default`` of None means unset; ``unset`` then says what happens.

    ``standard`` is the variable of OpenTelemetry, or of SkyWalking's agents, that applies where neither our variable
    nor the file sets a value.
    """

    __slots__ = ("default", "field", "kind", "meaning", "name", "secret", "standard", "unset", "variable")

    def __init__(
        self, kind: Kind[Any], default: Any, meaning: str, unset: str = "", *, standard: str = "", secret: bool = False
    ) -> None:
        self.kind = kind
        self.default = default
        self.meaning = meaning
        self.unset = unset
        self.standard = standard
        self.secret = secret

    def __set_name__(self, owner: type[Values], name: str) -> None:
        self.field = name
        self.name = f"{owner.prefix}{name}"
        self.variable = PREFIX + self.name.upper()

    def text(self, value: object) -> str:
        """The value as a user would write it; for None, what unset means."""
        return self.unset if value is None else self.kind.write(value)


def setting(
    kind: Kind[T], default: D, meaning: str, unset: str = "", *, standard: str = "", secret: bool = False
) -> T | D:
    """A row of the table, typed for mypy as the value that it has in a process."""
    row: Any = Setting(kind, default, meaning, unset, standard=standard, secret=secret)
    value: T | D = row
    return value


class Values:
    """The values of the settings of a table, which is the class: each of its fields is a row. They cannot be changed.

    Attributes:
        prefix: How the names of the settings begin.
    """

    # Not a dataclass: defining one of this size takes more than a millisecond in every worker.

    prefix: ClassVar = ""
    rows: ClassVar[tuple[Setting, ...]]

    def __init_subclass__(cls) -> None:
        cls.rows = tuple(row for row in vars(cls).values() if isinstance(row, Setting))

    def __init__(self, **values: Any) -> None:
        """Set these fields, and all others to their defaults."""
        known = {row.field: row.default for row in self.rows}
        if unknown := values.keys() - known:
            raise TypeError(f"no settings: {', '.join(sorted(unknown))}")
        vars(self).update(known | values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"settings cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(type(self))  # values may be mappings, and there are few of these objects

    def __repr__(self) -> str:
        fields = [f"{row.name}={getattr(self, row.field)!r}" for row in self.rows if not row.secret]
        return f"{type(self).__name__}({', '.join(fields)})"


V = TypeVar("V", bound=Values)

SINKS: Mapping[str, tuple[str, ...] | None] = {
    "local": None,
    "otlp": None,
    "jaeger": (),
    "skywalking": ("SW_AGENT_",),
}
"""The sinks of this package, each a module of its name in ``_ship/sinks/``. Those that are not None declare settings of
their own, in the class ``Settings`` of ``NAME_settings.py`` there; the tuple has the beginnings of the other variables
that all these settings follow."""

DECLARING = tuple(sink for sink, variables in SINKS.items() if variables is not None)


class Settings(Values):
    """The validated settings of a process. Sizes are in bytes, times in seconds, paths absolute."""

    exporters: tuple[str, ...] = setting(
        NAMES,
        ("local",),
        f"where `ray_tracing_hooks:setup` sends spans: comma-separated list of "
        f"{', '.join(f'`{sink}`' for sink in SINKS)} and installed exporters, or `none`; if unset, "
        "`OTEL_TRACES_EXPORTER` applies",
        standard="OTEL_TRACES_EXPORTER",
    )
    config: str | None = setting(PATH, None, "YAML file with these settings, such as `local_dir: /data/spans`")
    local_dir: str = setting(
        FOLDER,
        "/tmp/spans",  # noqa: S108 - the contract
        "folder of the local exporter's files; `session` is `logs/spans` in the folder of Ray's session, on each node",
    )
    local_file_max_bytes: int = setting(SIZE, 64 << 20, "size at which the local exporter begins a new file")
    local_max_bytes: int = setting(
        SIZE, 10 << 30, "maximum size of all files of the local exporter; beyond that, the oldest are removed"
    )
    group: int | None = setting(
        GROUP,
        None,
        "group, by number or name, that may read the local exporter's files and the delivery log; without it, they are "
        "private; the user who runs Ray must be in the group",
    )
    spool_dir: str | None = setting(
        PATH, None, "folder where spans wait on a node until they are delivered", "Ray's session folder"
    )
    spool_max_bytes: int = setting(
        SIZE,
        1 << 30,
        "maximum size of a spool; when it is full, the oldest spans are dropped; a node has one spool for each set of "
        "settings in use",
    )
    flush_timeout: float = setting(SECONDS, 5.0, "seconds that a driver waits for delivery at its exit")
    metrics: bool = setting(
        BOOLEAN,
        False,
        "compute metrics of calls from their spans, and metrics of delivery; the exporters `otlp` and `local` send "
        "them, and Prometheus can read them",
    )
    prometheus: str | None = setting(
        LISTENING,
        None,
        "where each node serves its metrics to Prometheus: a port of this machine, such as `9464`, or an address, such "
        "as `0.0.0.0:9464`; needs `ray-tracing-hooks[prometheus]`",
    )
    utilization: float | None = setting(
        SECONDS,
        None,
        "seconds between two samples of each node's processors, memory and GPUs, as metrics for the exporters `otlp` "
        "and `local`, and for Prometheus; GPUs need `nvidia-ml-py`",
        "no samples",
    )
    instrument: tuple[str, ...] = setting(
        NAMES,
        (),
        "libraries to instrument in drivers and workers: comma-separated list, such as `requests,httpx`; or `all`, or "
        "`none`",
    )
    ray: frozenset[str] = setting(
        any_of(*_ALL_PARTS, default=frozenset(_PARTS)),
        frozenset(_PARTS),
        f"parts of Ray to record: comma-separated list of `{'`, `'.join(_ALL_PARTS)}`; `+get,wait` adds these to the "
        "default; or `none`",
    )
    threads: bool = setting(
        BOOLEAN,
        False,
        "propagate the trace context into threads and `ThreadPoolExecutor` calls, with "
        "`opentelemetry-instrumentation-threading`; threads of Ray's libraries always have it",
    )
    include: tuple[str, ...] = setting(
        PATTERNS,
        (),
        "patterns for `module.function` and `Class.method`: only these are recorded; patterns with a slash, such as "
        "`/shop/*` or `GET /shop`, are for requests to Serve: only these requests and their calls are recorded",
    )
    exclude: tuple[str, ...] = setting(
        PATTERNS,
        (),
        "patterns for `module.function` and `Class.method`: these are not recorded; patterns with a slash, such as "
        "`/healthz` or `GET /healthz`, are for requests to Serve: these requests and their calls are not recorded",
    )
    rate_limit: tuple[tuple[str, float], ...] = setting(
        RATES,
        (),
        "maximum number of recorded calls per second, for each function or method in each process that calls it: a "
        "number, or patterns such as `Worker.process=10,*=1000`; the first match applies; generations of LLM engines "
        "are limited by the names of their spans, such as `text_completion *=10`",
        "no limit",
    )
    internal: bool = setting(
        BOOLEAN,
        False,
        "record Ray's internal tasks and actors too, of the dashboard and of Ray's libraries; Serve's only if "
        "`RAY_TRACING_RAY` lacks `serve`",
    )
    arguments: bool = setting(
        BOOLEAN, False, "record arguments and results as short texts on executions; likely secrets are redacted"
    )
    memory: bool = setting(
        BOOLEAN,
        False,
        "record the peak memory of the process, and of its PyTorch devices, on executions and training loops",
    )
    llm_phases: bool = setting(
        BOOLEAN, False, "the queue, prefill and decode of a generation as spans too, besides the attributes of its span"
    )
    llm_usage: bool = setting(
        BOOLEAN,
        True,
        "count the tokens of generations as `gen_ai.usage.*`; `0` counts them as `ray.llm.*`, for viewers that add up "
        "nested spans, where the clients' spans count the same tokens",
    )
    redact: tuple[str, ...] = setting(
        PATTERNS, (), "more patterns to redact: names of arguments, dictionary keys, and texts"
    )
    logs: frozenset[str] = setting(
        any_of("ids", "tid", "otlp", default=frozenset({"ids"})),
        frozenset({"ids"}),
        "treatment of log records: comma-separated list of `ids` (records within a span get its ids), `tid` (they get "
        "SkyWalking's trace id, for `%(tid)s`) and `otlp` (the exporters `local` and `otlp` deliver all log "
        "records); `+otlp` adds it to the default; or `none`",
    )
    logs_level: str = setting(LEVEL, "INFO", "the lowest level of log records that `otlp` records")
    keep_errors: bool = setting(
        BOOLEAN,
        False,
        "record failed spans of traces that are not sampled, with the submission of the call",
    )
    keep_slower: float | None = setting(
        SECONDS,
        None,
        "record spans of traces that are not sampled if they take this many seconds or more",
    )
    compiled: bool = setting(
        BOOLEAN,
        True,
        "record and deliver spans with the compiled code, where it is installed; `0` uses the equivalent Python code",
    )
    root_span: bool = setting(BOOLEAN, True, "record one root span per driver, so that a script is one trace")
    states_timeout: float = setting(
        SECONDS,
        2.0,
        "maximum number of seconds that a driver spends at its exit on fetching task states, if it started its cluster "
        "and has the exporter `local`; 0 skips that",
    )
    trace_url: str | None = setting(
        TRACE_URL,
        None,
        "address of a trace in your back end, for the links of `summary`, `tree` and reports, such as "
        "`https://jaeger.example.com/trace/{trace_id}`; `{span_id}` is replaced too",
        "no links",
    )
    collect_to: str | None = setting(
        PLACE,
        None,
        "absolute path of a folder, or URL such as `s3://bucket/spans`: a driver collects the span files of all nodes "
        "there at its exit, like `ray-tracing-hooks collect`; after `parquet:`, it is a store of runs",
        secret=True,
    )
    collect_timeout: float = setting(
        SECONDS, 60.0, "maximum number of seconds that a driver spends at its exit on `RAY_TRACING_COLLECT_TO`"
    )
    strict: bool = setting(BOOLEAN, False, "raise an error if tracing fails, instead of continuing without it")

    sinks: tuple[Values, ...]
    """The tables of sinks of which some are set."""

    def __init__(self, **values: Any) -> None:
        """Set these settings by name, and ``sinks``, and all others to their defaults."""
        vars(self)["sinks"] = values.pop("sinks", ())
        super().__init__(**values)

    def of(self, table: type[V]) -> V:
        """The settings of the table of a sink."""
        return next((found for found in self.sinks if type(found) is table), None) or table()

    def in_session(self, session_dir: str = "") -> Settings:
        """The same with the path of ``local_dir``, given the folder of a session; without one, of the newest here."""
        if self.local_dir != SESSION:
            return self
        folder = os.path.join(session_dir or latest_session(), "logs", "spans")
        return Settings(**{**vars(self), "local_dir": folder})

    def value(self, row: Setting) -> Any:
        tables = (self, *self.sinks)
        return next((getattr(table, row.field) for table in tables if row in table.rows), row.default)


def table_of(sink: str) -> type[Values]:
    """The table of one of these sinks. A process imports it only where one of its settings is set, or all are shown."""
    table: type[Values] = import_module(f"ray_tracing_hooks._ship.sinks.{sink}_settings").Settings
    return table


def all_settings() -> tuple[Setting, ...]:
    """The rows of all tables."""
    return Settings.rows + tuple(row for sink in DECLARING for row in table_of(sink).rows)


LIVE = frozenset(
    {
        *("exporters", "local_dir", "local_file_max_bytes", "local_max_bytes", "spool_max_bytes"),
        *("jaeger_protocol", "jaeger_endpoint", "prometheus", "utilization"),
        *("include", "exclude", "rate_limit", "internal", "arguments", "redact", "memory"),
        *("llm_phases", "llm_usage"),
        *("keep_errors", "keep_slower"),
    }
)
"""The settings that a running process can change (``ray-tracing-hooks configure``). The others decide what of Ray and
of libraries is wrapped and what callers send, and so have to be the same in all processes of a cluster from the start.
"""

PLANNED = (
    *("local_dir", "local_file_max_bytes", "local_max_bytes", "spool_max_bytes", "group"),
    *("metrics", "utilization", "prometheus"),
)
"""The settings that a shipper follows: they are in its plan. Those that a sink declares are in its environment."""


def load(
    environ: Mapping[str, str], problem: Callable[[str], None], directory: Callable[[], str] = os.getcwd
) -> Settings:
    """The settings that ``environ`` and the YAML file it names ask for. Never raises.

    Relative paths are relative to ``directory``, or to the working directory where that raises OSError. Invalid values
    are ignored, and ``problem`` is called with one sentence for each: where it was set, the value, what is expected,
    and what is used instead.
    """
    return load_with_sources(environ, problem, directory)[0]


def load_with_sources(
    environ: Mapping[str, str], problem: Callable[[str], None], directory: Callable[[], str] = os.getcwd
) -> tuple[Settings, dict[str, str]]:
    """Like :func:`load`, with the source of each value by name: a variable, the path of the file, or ``default``."""
    rows = {row.name: row for row in Settings.rows}
    config = rows.pop(_CONFIG)
    file, source = _choose(config, _from_variable(config, environ), problem, directory)
    sources = {_CONFIG: source}
    in_file: Mapping[object, object] = {}
    if file is not None:
        # Imported only where a file is named.
        from ray_tracing_hooks._safety.guard import SettingError  # noqa: PLC0415
        from ray_tracing_hooks._settings.file import contents  # noqa: PLC0415

        try:
            in_file = contents(file)
        except SettingError as error:
            problem(f"{config.variable}={shown(file)} is ignored: {error}; using the variables and defaults.")

    def values(rows: Iterable[Setting]) -> Iterator[tuple[str, Any]]:
        for row in rows:
            given = _from_variable(row, environ)
            if not empty(in_file.get(row.name)):
                given.append(Given(file or "", f"{file}: {row.name}", in_file[row.name]))
            value, sources[row.name] = _choose(row, given + _from_standard(row, environ), problem, directory)
            yield row.field, value

    found = dict(values(rows.values()))
    names = {*environ, *(f"{PREFIX}{key}".upper() for key in in_file)}
    tables = [table_of(sink) for sink in DECLARING if any(name.startswith(variables_of(sink)) for name in names)]
    of_sinks = [table(**dict(values(table.rows))) for table in tables]
    settings = Settings(config=file, sinks=tuple(each for each in of_sinks if each != type(each)()), **found)
    _report_unknown(sources, environ, in_file, file, problem)
    return settings, sources


def variables_of(sink: str) -> tuple[str, ...]:
    """How the names of the variables begin that set the settings of a sink that declares some."""
    return f"{PREFIX}{sink.upper()}_", *(SINKS[sink] or ())


def from_variables(table: type[V], environ: Mapping[str, str], problem: Callable[[str], None]) -> V:
    """The settings of a table, from variables alone."""
    return table(
        **{
            row.field: _choose(row, _from_variable(row, environ) + _from_standard(row, environ), problem, os.getcwd)[0]
            for row in table.rows
        }
    )


def as_variables(settings: Settings) -> dict[str, str]:
    """The settings of sinks that differ from their defaults, as environment variables."""
    values = [(row, getattr(table, row.field)) for table in settings.sinks for row in table.rows]
    return {row.variable: row.text(value) for row, value in values if value != row.default}


def markdown_table() -> str:
    """The settings as the table of the README."""
    return table_of_settings((row.variable, row.text(row.default), row.default, row.meaning) for row in all_settings())


def _from_variable(setting: Setting, environ: Mapping[str, str], variable: str = "") -> list[Given]:
    variable = variable or setting.variable
    value = environ.get(variable)
    return [] if empty(value) else [Given(variable, variable, value)]


def _from_standard(setting: Setting, environ: Mapping[str, str]) -> list[Given]:
    return _from_variable(setting, environ, setting.standard) if setting.standard else []


def _choose(
    setting: Setting, given: list[Given], problem: Callable[[str], None], directory: Callable[[], str]
) -> tuple[Any, str]:
    if setting.kind in {PATH, FOLDER}:
        given = [_absolute(each, problem, directory) for each in given]
    value, source = choose(
        setting.kind, given, setting.default, problem, unset=setting.unset or "none", secret=setting.secret
    )
    return value, source or "default"


def _absolute(given: Given, problem: Callable[[str], None], directory: Callable[[], str]) -> Given:
    if not isinstance(given.value, str) or given.value.strip().startswith(("/", "~")) or "\0" in given.value:
        return given
    if given.value.strip() == SESSION and given.label.endswith(("LOCAL_DIR", "local_dir")):
        return given
    try:
        return given._replace(value=os.path.join(directory(), given.value.strip()))
    except OSError as error:
        if directory is not os.getcwd:
            hint(
                problem,
                f"{given.label}={shown(given.value)} is relative to the folder in which Ray was started, which cannot "
                f"be found ({error.strerror}): the working directory of this process is used; give an absolute path.",
            )
        return given


def _report_unknown(
    known: Container[object],
    environ: Mapping[str, str],
    in_file: Mapping[object, object],
    file: str | None,
    problem: Callable[[str], None],
) -> None:
    """Report the variables and keys of the file that set none of the ``known`` settings."""
    for variable, value in copied(environ).items():
        name = variable.removeprefix(PREFIX)
        is_known = name == variable or (name.isupper() and name.lower() in known)
        if not is_known and not empty(value) and not _is_of_service(variable, environ):
            right = {row.name.upper(): row.variable for row in all_settings()}
            # Without its value, which may be a password and must not be logged.
            problem(f"unknown variable {variable} is ignored; {_closest(name.upper(), right)}")
    for key in in_file:
        if key == _CONFIG or key not in known:
            # A key that is not a name may be a whole line, value included.
            name = str(key) if isinstance(key, int) or (isinstance(key, str) and re.fullmatch(_NAME, key)) else ""
            what = f"unknown setting {shown(key)}" if name else "a setting whose key is not a name"
            right = {row.name: repr(row.name) for row in all_settings() if row.name != _CONFIG}
            problem(f"{file}: {what} is ignored; {_closest(name.lower(), right)}")


def _is_of_service(variable: str, environ: Mapping[str, str]) -> bool:
    """Whether Kubernetes made this variable, for a Service whose name begins with ``ray-tracing``."""
    service = re.match(r"(\w+?)_(?:SERVICE_HOST$|SERVICE_PORT|PORT$|PORT_\d)", variable)
    return service is not None and f"{service[1]}_SERVICE_HOST" in environ


def _closest(wrong: str, right: Mapping[str, str]) -> str:
    import difflib  # noqa: PLC0415 - only needed after a typo

    matches = difflib.get_close_matches(wrong, right, n=1)
    return f"did you mean {right[matches[0]]}?" if matches else "`ray-tracing-hooks config` lists all settings."
