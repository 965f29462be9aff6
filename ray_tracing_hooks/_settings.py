"""The settings: their names, allowed values and meanings, and their values in this process.

:class:`Settings` is the only table. Each of its fields is an environment variable, ``RAY_TRACING_`` and the name in
capitals, and a key of the YAML file that ``RAY_TRACING_CONFIG`` names. A variable takes precedence over the file, and
the file over the default. An empty value counts as unset. Nothing is read when this module is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from ray_tracing_hooks._libraries import LIBRARIES
from ray_tracing_hooks._values import (
    ADDRESSES,
    BOOLEAN,
    GROUP,
    HEADER_PREFIX,
    ID,
    LEVEL,
    LISTENING,
    NAMES,
    PATH,
    PATTERNS,
    PLACE,
    RATES,
    SECONDS,
    SERVICE_TEMPLATE,
    SIZE,
    TEXT,
    URL,
    Given,
    Kind,
    any_of,
    choose,
    copied,
    empty,
    hint,
    one_of,
    shown,
)

PREFIX = "RAY_TRACING_"
_CONFIG = "config"
_NAME = r"[\w.-]{1,50}"

_TYPO = 0.85
"""How similar two names are if one is a misspelling of the other, of at most 1."""

_MOST_NAMED = 3
"""The most settings that are named instead of an unknown one."""

_PARTS = ("task", "actor", "job", *(library.part for library in LIBRARIES))
"""The parts of Ray that make spans by default."""

T = TypeVar("T")
D = TypeVar("D")


class Setting:
    """One row of the table. A ``default`` of None means unset; ``unset`` then says what happens.

    ``standard`` is the variable of OpenTelemetry, or of SkyWalking's agents, that applies where neither our variable
    nor the file sets a value.
    """

    __slots__ = ("default", "kind", "meaning", "name", "secret", "standard", "unset", "variable")

    def __init__(
        self, kind: Kind[Any], default: Any, meaning: str, unset: str = "", *, standard: str = "", secret: bool = False
    ) -> None:
        self.kind = kind
        self.default = default
        self.meaning = meaning
        self.unset = unset
        self.standard = standard
        self.secret = secret

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.variable = PREFIX + name.upper()

    def text(self, value: object) -> str:
        """The value as a user would write it; for None, what unset means."""
        return self.unset if value is None else self.kind.write(value)


def _setting(
    kind: Kind[T], default: D, meaning: str, unset: str = "", *, standard: str = "", secret: bool = False
) -> T | D:
    """A row of the table, typed for mypy as the value that it has in a process."""
    row: Any = Setting(kind, default, meaning, unset, standard=standard, secret=secret)
    value: T | D = row
    return value


class Settings:
    """The validated settings of a process. Sizes are in bytes, times in seconds, paths absolute."""

    # Not a dataclass: defining one of this size takes more than a millisecond in every worker.

    exporters: tuple[str, ...] = _setting(
        NAMES,
        ("local",),
        "where `ray_tracing_hooks:setup` sends spans: comma list of `local`, `otlp`, `jaeger`, `skywalking` and "
        "installed exporters, or `none`; `OTEL_TRACES_EXPORTER` where this is unset",
        standard="OTEL_TRACES_EXPORTER",
    )
    config: str | None = _setting(PATH, None, "YAML file with these settings, such as `local_dir: /data/spans`")
    local_dir: str = _setting(PATH, "/tmp/spans", "folder of the local exporter's files")  # noqa: S108 - the contract
    local_file_max_bytes: int = _setting(SIZE, 64 << 20, "size at which the local exporter begins a new file")
    local_max_bytes: int = _setting(
        SIZE, 10 << 30, "maximum size of all files of the local exporter; beyond that, the oldest are removed"
    )
    group: int | None = _setting(
        GROUP,
        None,
        "a group, by number or name, that may read the local exporter's files and the delivery log, which are private "
        "otherwise; the user who runs Ray must be in it",
    )
    spool_dir: str | None = _setting(
        PATH, None, "folder where spans wait on a node until they are delivered", "Ray's session folder"
    )
    spool_max_bytes: int = _setting(
        SIZE,
        1 << 30,
        "maximum size of a spool (one per node, and for each set of settings in use on it); beyond that, the oldest "
        "spans are dropped",
    )
    flush_timeout: float = _setting(SECONDS, 5.0, "seconds that a driver's exit waits for delivery")
    jaeger_protocol: str = _setting(
        one_of("otlp-grpc", "otlp-http", "thrift-http", "thrift-udp", "grpc"),
        "otlp-grpc",
        "how the Jaeger exporter sends: `otlp-grpc`, `otlp-http`, or Jaeger's own `thrift-http`, `thrift-udp`, `grpc`",
    )
    jaeger_endpoint: str | None = _setting(
        URL,
        None,
        "the address of Jaeger, such as `http://jaeger:4317`",
        "from `OTEL_EXPORTER_JAEGER_*`, else localhost",
        secret=True,
    )
    skywalking_protocol: str = _setting(
        one_of("sw8", "sw6"),
        "sw8",
        "the generation of SkyWalking: `sw8` is 8.0 and newer, `sw6` is 6.x and 7.x",
    )
    skywalking_transport: str = _setting(
        one_of("grpc", "http", "none"),
        "grpc",
        "how the SkyWalking exporter sends: `grpc`, `http` (only with `sw8`), or `none`, which only joins traces by "
        "headers; `SW_AGENT_PROTOCOL` where this is unset",
        standard="SW_AGENT_PROTOCOL",
    )
    skywalking_endpoint: tuple[str, ...] | None = _setting(
        ADDRESSES,
        None,
        "comma list of the addresses of SkyWalking's back end, such as `oap:11800`; "
        "`SW_AGENT_COLLECTOR_BACKEND_SERVICES` where this is unset",
        "localhost, port 11800 (gRPC) or 12800",
        standard="SW_AGENT_COLLECTOR_BACKEND_SERVICES",
        secret=True,
    )
    skywalking_token: str | None = _setting(
        TEXT,
        None,
        "the token that the back end asks for; `SW_AGENT_AUTHENTICATION` where this is unset",
        standard="SW_AGENT_AUTHENTICATION",
        secret=True,
    )
    skywalking_tls: bool = _setting(
        BOOLEAN,
        False,
        "TLS for addresses without a scheme; `SW_AGENT_FORCE_TLS` where this is unset",
        standard="SW_AGENT_FORCE_TLS",
    )
    skywalking_certificate: str | None = _setting(
        PATH,
        None,
        "file with the CA certificates used to verify the back end; `SW_AGENT_SSL_TRUSTED_CA_PATH` where this is unset",
        "system's",
        standard="SW_AGENT_SSL_TRUSTED_CA_PATH",
    )
    skywalking_client_certificate: str | None = _setting(
        PATH,
        None,
        "file with the certificate of this client, where the back end asks for one; `SW_AGENT_SSL_CERT_CHAIN_PATH` "
        "where this is unset",
        standard="SW_AGENT_SSL_CERT_CHAIN_PATH",
    )
    skywalking_client_key: str | None = _setting(
        PATH,
        None,
        "file with its private key; `SW_AGENT_SSL_KEY_PATH` where this is unset",
        "in the file of the certificate",
        standard="SW_AGENT_SSL_KEY_PATH",
    )
    skywalking_service: str | None = _setting(
        TEXT,
        None,
        "the name of the service in SkyWalking; `SW_AGENT_NAME` where this is unset",
        "`service.name`",
        standard="SW_AGENT_NAME",
    )
    skywalking_instance: str | None = _setting(
        TEXT,
        None,
        "the name of the instance, the same for the whole cluster; `SW_AGENT_INSTANCE_NAME` where this is unset",
        "the session of Ray",
        standard="SW_AGENT_INSTANCE_NAME",
    )
    skywalking_namespace: str | None = _setting(
        TEXT,
        None,
        "what follows the name of the service, after a vertical bar; `SW_AGENT_NAMESPACE` where this is unset",
        standard="SW_AGENT_NAMESPACE",
    )
    skywalking_deployment_service: str | None = _setting(
        SERVICE_TEMPLATE,
        None,
        "makes each deployment of Ray Serve a service of its own in SkyWalking, with this name: "
        "`{service}-{deployment}`, `{application}.{deployment}`; only with `sw8`",
        "the service of the cluster",
    )
    skywalking_header_prefix: str | None = _setting(
        HEADER_PREFIX,
        None,
        "what precedes the names of the headers: `shop` makes `shop-sw8`, as a Java agent's namespace does until 8.9",
    )
    skywalking_correlation: bool = _setting(
        BOOLEAN, False, "baggage is sent as correlation context (`sw8-correlation`), and becomes baggage on arrival"
    )
    skywalking_unsampled: str = _setting(
        one_of("omit", "suppress", "flag"),
        "omit",
        "what calls from a trace that is not sampled send: nothing (`omit`), a header that keeps the receiver from "
        "tracing (`suppress`, only with `sw8`), or one with the flag 0, which receivers ignore (`flag`)",
    )
    skywalking_service_id: int | None = _setting(
        ID, None, "with `sw6`: the id that the service is registered with", "assigned by the back end"
    )
    skywalking_instance_id: int | None = _setting(
        ID, None, "with `sw6`: the id that the instance is registered with", "assigned by the back end"
    )
    metrics: bool = _setting(
        BOOLEAN,
        False,
        "metrics of calls, computed from their spans, and of the delivery of spans: for the exporters `otlp` and "
        "`local`, and for Prometheus",
    )
    prometheus: str | None = _setting(
        LISTENING,
        None,
        "where each node serves its metrics to Prometheus: a port of this machine, such as `9464`, or an address, such "
        "as `0.0.0.0:9464`; needs `ray-tracing-hooks[prometheus]`",
    )
    utilization: float | None = _setting(
        SECONDS,
        None,
        "interval in seconds at which the use of each node's processors, memory and GPUs is measured, as metrics: for "
        "the exporters `otlp` and `local`, and for Prometheus; GPUs need `nvidia-ml-py`",
        "no samples",
    )
    instrument: tuple[str, ...] = _setting(
        NAMES,
        (),
        "libraries to instrument in drivers and workers: comma list, such as `requests,httpx`; or `all`, or `none`",
    )
    ray: frozenset[str] = _setting(
        any_of(*_PARTS, "get", "wait", "put", default=frozenset(_PARTS)),
        frozenset(_PARTS),
        "parts of Ray that make spans: comma list of `task`, `actor`, `job`, `serve`, `data`, `train`, `tune`, "
        "`rllib`, `get`, `wait`, `put`; `+get,wait` adds these to the default; or `none`",
    )
    threads: bool = _setting(
        BOOLEAN,
        False,
        "carry the context into threads and calls of a `ThreadPoolExecutor`, by "
        "`opentelemetry-instrumentation-threading`; those of Ray's libraries have it in any case",
    )
    include: tuple[str, ...] = _setting(
        PATTERNS,
        (),
        "patterns for `module.function` and `Class.method`: only these make spans; with a slash, for requests to "
        "Serve, such as `/shop/*` or `GET /shop`: only these and what they call",
    )
    exclude: tuple[str, ...] = _setting(
        PATTERNS,
        (),
        "patterns for `module.function` and `Class.method`: these make no spans; with a slash, for requests to Serve, "
        "such as `/healthz` or `GET /healthz`: these make none, nor does what they call",
    )
    rate_limit: tuple[tuple[str, float], ...] = _setting(
        RATES,
        (),
        "maximum number of calls per second that make spans, for each function or method and each process that calls "
        "it: a number, or patterns such as `Worker.process=10,*=1000`; the first match applies",
        "no limit",
    )
    internal: bool = _setting(
        BOOLEAN,
        False,
        "spans for Ray's internal tasks and actors too: those of the dashboard and of Ray's libraries (those of Serve "
        "only if `RAY_TRACING_RAY` lacks `serve`)",
    )
    arguments: bool = _setting(
        BOOLEAN, False, "arguments and results as short texts on executions; what looks like a secret is redacted"
    )
    memory: bool = _setting(
        BOOLEAN,
        False,
        "the peak memory of the process, and of its devices in PyTorch, on executions and training loops",
    )
    redact: tuple[str, ...] = _setting(
        PATTERNS, (), "patterns for names of arguments and keys, and for texts: these are redacted too"
    )
    logs: frozenset[str] = _setting(
        any_of("ids", "tid", "otlp", default=frozenset({"ids"})),
        frozenset({"ids"}),
        "what to do with log records made within a span: comma list of `ids` (they get its ids), `tid` (they "
        "get SkyWalking's id of the trace, for `%(tid)s`) and `otlp` (all log records are delivered too, by the "
        "exporters `local` and `otlp`); `+otlp` adds it to the default; or `none`",
    )
    logs_level: str = _setting(LEVEL, "INFO", "the lowest level of log records that `otlp` records")
    keep_errors: bool = _setting(
        BOOLEAN,
        False,
        "record spans of traces that are not sampled if they fail, with the submission of the call",
    )
    keep_slower: float | None = _setting(
        SECONDS,
        None,
        "the same for those that take this many seconds or more",
    )
    compiled: bool = _setting(
        BOOLEAN,
        True,
        "record and deliver spans with the compiled code, where it is installed; `0` uses the equivalent Python code",
    )
    root_span: bool = _setting(BOOLEAN, True, "one root span per driver, so that a script is one trace")
    states_timeout: float = _setting(
        SECONDS,
        2.0,
        "maximum number of seconds that the exit of a driver which started its cluster spends on fetching the states "
        "of tasks, for the exporter `local`; 0 skips that",
    )
    collect_to: str | None = _setting(
        PLACE,
        None,
        "absolute path of a folder, or URL such as `s3://bucket/spans`, where a driver at its end collects the span "
        "files of all nodes, as `ray-tracing-hooks collect` does",
        secret=True,
    )
    collect_timeout: float = _setting(
        SECONDS, 60.0, "maximum number of seconds that a driver spends at its end on `RAY_TRACING_COLLECT_TO`"
    )
    strict: bool = _setting(BOOLEAN, False, "raise where tracing fails, instead of continuing without it")

    def __init__(self, **values: Any) -> None:
        """Set these settings by name, and all others to their defaults."""
        known = {row.name: row.default for row in SETTINGS}
        if unknown := values.keys() - known:
            raise TypeError(f"no settings: {', '.join(sorted(unknown))}")
        vars(self).update(known | values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"settings cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, Settings) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        fields = [f"{row.name}={getattr(self, row.name)!r}" for row in SETTINGS if not row.secret]
        return f"Settings({', '.join(fields)})"


SETTINGS: tuple[Setting, ...] = tuple(row for row in vars(Settings).values() if isinstance(row, Setting))

LIVE = frozenset(
    {
        *("exporters", "local_dir", "local_file_max_bytes", "local_max_bytes", "spool_max_bytes"),
        *("jaeger_protocol", "jaeger_endpoint", "prometheus", "utilization"),
        *("include", "exclude", "rate_limit", "internal", "arguments", "redact", "memory"),
        *("keep_errors", "keep_slower"),
    }
)
"""The settings that a running process can change (``ray-tracing-hooks configure``). The others decide what of Ray and
of libraries is wrapped and what callers send, and so have to be the same in all processes of a cluster from the start.
"""

PLANNED = (
    *("local_dir", "local_file_max_bytes", "local_max_bytes", "spool_max_bytes", "group", "jaeger_protocol"),
    *("metrics", "utilization", "prometheus"),
)
"""The settings that a shipper follows: they are in its plan. Those that may be secret are in its environment."""


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
    others = {setting.name: setting for setting in SETTINGS}
    config = others.pop(_CONFIG)
    file, source = _choose(config, _from_variable(config, environ), problem, directory)
    values, sources = {_CONFIG: file}, {_CONFIG: source}
    in_file: Mapping[object, object] = {}
    if file is not None:
        # Imported only where a file is named.
        from ray_tracing_hooks._errors import SettingError  # noqa: PLC0415
        from ray_tracing_hooks._settings_file import contents  # noqa: PLC0415

        try:
            in_file = contents(file)
        except SettingError as error:
            problem(f"{config.variable}={shown(file)} is ignored: {error}; using the variables and defaults.")
    for name, setting in others.items():
        given = _from_variable(setting, environ)
        if not empty(in_file.get(name)):
            given.append(Given(file, f"{file}: {name}", in_file[name]))
        if setting.standard:
            given += _from_variable(setting, environ, setting.standard)
        values[name], sources[name] = _choose(setting, given, problem, directory)
    _report_unknown(environ, in_file, file, problem)
    return Settings(**values), sources


def some(environ: Mapping[str, str], problem: Callable[[str], None], prefix: str) -> dict[str, Any]:
    """The settings whose names begin with ``prefix``, by the rest of their names, from variables alone."""
    found = {}
    for row in SETTINGS:
        if row.name.startswith(prefix):
            given = _from_variable(row, environ)
            if row.standard:
                given += _from_variable(row, environ, row.standard)
            found[row.name.removeprefix(prefix)] = _choose(row, given, problem, os.getcwd)[0]
    return found


def as_variables(settings: Settings, prefix: str) -> dict[str, str]:
    """The settings whose names begin with ``prefix`` and that differ from their defaults, as environment variables."""
    values = {row: getattr(settings, row.name) for row in SETTINGS if row.name.startswith(prefix)}
    return {row.variable: row.text(value) for row, value in values.items() if value != row.default}


def markdown_table() -> str:
    """The settings as the table of the README."""
    rows = ["| variable | default | meaning |", "| --- | --- | --- |"]
    for setting in SETTINGS:
        text = setting.text(setting.default)
        default = f"`{text}`" if text and setting.default is not None else text
        rows.append(f"| `{setting.variable}` | {default} | {setting.meaning} |".replace("|  |", "| |"))
    return "\n".join(rows) + "\n"


def _from_variable(setting: Setting, environ: Mapping[str, str], variable: str = "") -> list[Given]:
    variable = variable or setting.variable
    value = environ.get(variable)
    return [] if empty(value) else [Given(variable, variable, value)]


def _choose(
    setting: Setting, given: list[Given], problem: Callable[[str], None], directory: Callable[[], str]
) -> tuple[Any, str]:
    if setting.kind is PATH:
        given = [_absolute(each, problem, directory) for each in given]
    value, source = choose(
        setting.kind, given, setting.default, problem, unset=setting.unset or "none", secret=setting.secret
    )
    return value, source or "default"


def _absolute(given: Given, problem: Callable[[str], None], directory: Callable[[], str]) -> Given:
    if not isinstance(given.value, str) or given.value.strip().startswith(("/", "~")) or "\0" in given.value:
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
    environ: Mapping[str, str], in_file: Mapping[object, object], file: str | None, problem: Callable[[str], None]
) -> None:
    variables = {setting.variable.removeprefix(PREFIX): setting.variable for setting in SETTINGS}
    for variable, value in copied(environ).items():
        name = variable.removeprefix(PREFIX)
        if name != variable and name not in variables and not empty(value) and not _is_of_service(variable, environ):
            # Without its value, which may be a password and must not be logged.
            problem(f"unknown variable {variable} is ignored; {_closest(name.upper(), variables)}")
    keys = {setting.name: repr(setting.name) for setting in SETTINGS if setting.name != _CONFIG}
    for key in in_file:
        if key not in keys:
            # A key that is not a name may be a whole line, value included.
            name = str(key) if isinstance(key, int) or (isinstance(key, str) and re.fullmatch(_NAME, key)) else ""
            what = f"unknown setting {shown(key)}" if name else "a setting whose key is not a name"
            problem(f"{file}: {what} is ignored; {_closest(name.lower(), keys)}")


def _is_of_service(variable: str, environ: Mapping[str, str]) -> bool:
    """Whether Kubernetes made this variable, for a Service whose name begins with ``ray-tracing``."""
    service = re.match(r"(\w+?)_(?:SERVICE_HOST$|SERVICE_PORT|PORT$|PORT_\d)", variable)
    return service is not None and f"{service[1]}_SERVICE_HOST" in environ


def _closest(wrong: str, right: Mapping[str, str]) -> str:
    import difflib  # noqa: PLC0415 - only needed after a typo

    matches = difflib.get_close_matches(wrong, right, n=1, cutoff=_TYPO)
    if not matches:
        # Words that differ make other settings close in letters: SPOOL_SIZE is SPOOL_MAX_BYTES rather than SPOOL_DIR.
        subject, underscore, _ = wrong.partition("_")
        same = [name for name in right if underscore and name.startswith(subject + underscore)]
        matches = same or difflib.get_close_matches(wrong, right, n=1)
    if not matches or len(matches) > _MOST_NAMED:
        return "`ray-tracing-hooks config` lists all settings."
    return f"did you mean {' or '.join(right[name] for name in matches)}?"
