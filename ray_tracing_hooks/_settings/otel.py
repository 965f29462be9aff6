"""The standard OTEL_* variables that this package reads: their allowed values, meanings and current values.

They are those of the OpenTelemetry environment variable specification
(https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/) and of its exporters. As it asks, an
empty value counts as unset; an invalid one is reported and counts as unset too. Nothing is read when this module is
imported, and nothing heavy is imported with it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from ray_tracing_hooks._settings.values import (
    MOST_SECONDS,
    NAMES,
    URL,
    Given,
    Kind,
    PartlyWrongError,
    choose,
    empty,
    one_of,
    table_of_settings,
    unicode,
    within,
    write_number,
)

Problem = Callable[[str], None]

OTLP = "OTEL_EXPORTER_OTLP_"
OTLP_METRICS = f"{OTLP}METRICS_"
JAEGER = "OTEL_EXPORTER_JAEGER_"

LIVE = ("OTEL_TRACES_SAMPLER", OTLP, JAEGER, "OTEL_BSP_", "OTEL_METRIC_EXPORT_")
"""How the names of the variables begin that decide which traces are recorded, and how spans are delivered."""

_MILLISECONDS_FROM = 500
"""A time-out of this number or more is in milliseconds, as the specification says; a smaller one is in seconds, which
is how OpenTelemetry Python has always read it. A time-out of eight minutes, or of half a millisecond, is unlikely."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Variable(NamedTuple):
    """One row of the table. A ``default`` of None means unset; ``unset`` then says what happens."""

    name: str
    kind: Kind[Any]
    default: Any
    meaning: str
    unset: str = ""
    secret: bool = False

    def forms(self, signal: str = "traces") -> tuple[str, ...]:
        """The variables that can set the value for this signal; the first that is set takes precedence."""
        if self.name.startswith(OTLP) and not self.name.startswith(OTLP_METRICS):
            return (f"{OTLP}{signal.upper()}_{self.name.removeprefix(OTLP)}", self.name)
        return (self.name,)

    def text(self, value: object) -> str:
        """The value as a user would write it; for None, what unset means."""
        return self.unset if value is None else self.kind.write(value)

    @property
    def live(self) -> bool:
        """Whether a running process can change it (``ray-tracing-hooks configure``)."""
        return self.name.startswith(LIVE)


def _text(value: object) -> str:
    return unicode(str(value)).strip()


def _boolean(value: object) -> bool:
    text = _text(value).lower()
    if text in {"true", "false"}:
        return text == "true"
    raise ValueError


def _whole(least: int, value: object, most: float = math.inf) -> int:
    text = _text(value)
    if not text.isascii() or not text.isdigit():
        raise ValueError
    return within(int(text), least, most)


def _milliseconds(least: int, value: object) -> float:
    return _whole(least, value, MOST_SECONDS * 1000) / 1000


def _timeout(value: object) -> float:
    number = float(_text(value))
    if not 0 < number < MOST_SECONDS:
        raise ValueError
    return number / 1000 if number >= _MILLISECONDS_FROM else number


def _file(value: object) -> str:
    path = os.path.abspath(os.path.expanduser(str(value).strip()))
    try:
        with open(path, "rb"):
            return path
    except OSError as error:
        raise ValueError from error


def _pairs(value: object) -> dict[str, str]:
    """``key=value`` pairs of the W3C baggage format, percent-encoded."""
    return _split(value, lambda key, _: key, "key=value pairs")


def _headers(value: object) -> dict[str, str]:
    # No transport accepts anything else; a line break would start another header.
    return _split(
        value,
        lambda name, item: name.lower() if _TOKEN.fullmatch(name) and item.isprintable() and item.isascii() else "",
        "name=value pairs of printable ASCII",
    )


def _split(value: object, named: Callable[[str, str], str], expected: str) -> dict[str, str]:
    """Pairs by the names that ``named`` gives them; those without a name are left out."""
    found: dict[str, str] = {}
    wrong = []
    for number, pair in enumerate(_text(value).split(","), start=1):
        key, equals, item = (unquote(part.strip()) for part in pair.partition("="))
        if equals and (name := named(key, item)):
            found[name] = item
        elif pair.strip():
            wrong.append(str(number))
    if wrong:
        raise PartlyWrongError(
            f"pair {', '.join(wrong)} of its value is left out: expected {expected} with commas between them", found
        )
    return found


def _write_pairs(pairs: Mapping[str, str]) -> str:
    return ",".join(f"{_QUOTED.sub(_quote, key)}={_QUOTED.sub(_quote, value)}" for key, value in pairs.items())


_QUOTED = re.compile(r"[%,=\x00-\x1f\x7f]|^\s+|\s+$")
"""The characters of a pair that do not stand for themselves."""


def _quote(match: re.Match[str]) -> str:
    return quote(match[0], safe="")


SAMPLERS = ("always_on", "always_off", "traceidratio")


def _sampler(value: object) -> str:
    name = _text(value).lower()
    if name.removeprefix("parentbased_") not in SAMPLERS and not _is_installed("opentelemetry_traces_sampler", name):
        raise ValueError
    return name


def _propagators(value: object) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name for part in _text(value).split(",") if (name := part.strip())))
    unknown = [
        name
        for name in names
        if name not in {"tracecontext", "baggage", "none"} and not _is_installed("opentelemetry_propagator", name)
    ]
    if unknown or not names:
        raise ValueError
    return names


def _is_installed(group: str, name: str) -> bool:
    # Only for names that are not built in: the first look-up of entry points takes tens of milliseconds.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return bool(entry_points(group=group, name=name))


STRING: Kind[str] = Kind("text", _text)
TRUE_FALSE = Kind("true or false", _boolean, lambda value: str(value).lower())
COUNT = Kind("a whole number of 0 or more", partial(_whole, 0))
BATCH = Kind("a whole number of 1 or more", partial(_whole, 1))
PORT = Kind("a port from 1 to 65535", partial(_whole, 1, most=0xFFFF))
MILLISECONDS, INTERVAL = (
    Kind[float](
        f"a whole number of milliseconds from {least} to {MOST_SECONDS * 1000:,}",
        partial(_milliseconds, least),
        lambda s: write_number(s * 1000),
    )
    for least in (0, 1)
)
TIMEOUT: Kind[float] = Kind(
    f"a time above 0: in seconds, or from {_MILLISECONDS_FROM} on in milliseconds",
    _timeout,
    lambda s: write_number(s if s < _MILLISECONDS_FROM else s * 1000),
)
RATIO: Kind[float] = Kind("a number from 0 to 1", lambda value: within(float(_text(value)), 0, 1), write_number)
READABLE_FILE = Kind("the path of a PEM file that can be read", _file)
PAIRS = Kind("key=value pairs with commas between them", _pairs, _write_pairs)
HEADERS = Kind("name=value pairs with commas between them", _headers, _write_pairs)
PROTOCOL = one_of("grpc", "http/protobuf", "http/json")
COMPRESSION = one_of("none", "gzip")
SAMPLER = Kind(
    "one of " + ", ".join([*SAMPLERS, *(f"parentbased_{name}" for name in SAMPLERS)]) + ", or an installed sampler",
    _sampler,
)
PROPAGATORS = Kind(
    # Only the commands can report it: OpenTelemetry ends a process with such a value before a hook is called.
    "a comma-separated list of tracecontext, baggage and installed propagators (b3, b3multi, jaeger, ...), or none; "
    "OpenTelemetry raises for any other, which ends each process of a traced cluster",
    _propagators,
    ",".join,
)

CAPTURING = ("true", "span_only", "span_and_event")
"""The values with which spans have the content of messages."""

VARIABLES: tuple[Variable, ...] = (
    Variable("OTEL_SDK_DISABLED", TRUE_FALSE, False, "record nothing"),
    Variable("OTEL_SERVICE_NAME", STRING, None, "the `service.name` of all spans", "`RAY_CLUSTER_NAME`, else `ray`"),
    Variable("OTEL_RESOURCE_ATTRIBUTES", PAIRS, None, "resource attributes of every process"),
    Variable("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", NAMES, None, "installed resource detectors to use"),
    Variable("OTEL_PROPAGATORS", PROPAGATORS, ("tracecontext", "baggage"), "formats of context propagation"),
    Variable("OTEL_TRACES_SAMPLER", SAMPLER, "parentbased_always_on", "which traces are recorded"),
    Variable("OTEL_TRACES_SAMPLER_ARG", RATIO, None, "the ratio of `traceidratio`", "1"),
    Variable("OTEL_ATTRIBUTE_COUNT_LIMIT", COUNT, None, "maximum number of attributes per span", "128"),
    Variable("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", COUNT, None, "longest text value of an attribute", "no limit"),
    Variable("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", COUNT, None, "the same, for spans alone", "as for all"),
    Variable("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", COUNT, None, "the same, for spans alone", "as for all"),
    Variable("OTEL_SPAN_EVENT_COUNT_LIMIT", COUNT, None, "maximum number of events per span", "128"),
    Variable("OTEL_SPAN_LINK_COUNT_LIMIT", COUNT, None, "maximum number of links per span", "128"),
    Variable("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", COUNT, None, "maximum number of attributes per event", "128"),
    Variable("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", COUNT, None, "maximum number of attributes per link", "128"),
    Variable(
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
        one_of("false", "no_content", "event_only", *CAPTURING),
        "false",
        "`true`, `span_only` or `span_and_event`: generations of LLM engines have prompts and completions",
    ),
    Variable("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", NAMES, None, "libraries that are never instrumented"),
    Variable(
        "OTEL_BSP_SCHEDULE_DELAY",
        MILLISECONDS,
        None,
        "how long spans wait to be sent in one batch, in milliseconds",
        "1000",
    ),
    Variable(
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", BATCH, None, "maximum number of spans per request", "as many as fit in 900 kB"
    ),
    Variable(
        "OTEL_BSP_EXPORT_TIMEOUT",
        MILLISECONDS,
        None,
        "longest time that one request may take, in milliseconds",
        "the exporter's own",
    ),
    Variable(
        "OTEL_METRIC_EXPORT_INTERVAL",
        INTERVAL,
        60.0,
        "milliseconds between two exports of metrics",
    ),
    Variable(
        "OTEL_METRIC_EXPORT_TIMEOUT",
        INTERVAL,
        30.0,
        "longest time that one request with metrics may take, in milliseconds",
    ),
    Variable(
        "OTEL_METRICS_EXEMPLAR_FILTER",
        one_of("trace_based", "always_on", "always_off"),
        "trace_based",
        "`always_off`: metrics carry no exemplars",
    ),
    Variable(
        f"{OTLP}PROTOCOL",
        PROTOCOL,
        None,
        "the OTLP protocol; without it, port 4318 or a path that ends in `/v1/traces` means `http/protobuf`",
        "the protocol of the endpoint, else grpc",
    ),
    Variable(
        f"{OTLP}ENDPOINT", URL, None, "the address of the collector", "localhost, port 4317 (gRPC) or 4318", secret=True
    ),
    Variable(f"{OTLP}HEADERS", HEADERS, None, "headers of each request, such as an API key", secret=True),
    Variable(f"{OTLP}TIMEOUT", TIMEOUT, 10.0, "longest time in seconds that one request may take"),
    Variable(f"{OTLP}COMPRESSION", COMPRESSION, "none", "compression of requests"),
    Variable(f"{OTLP}INSECURE", TRUE_FALSE, None, "gRPC without TLS, for an endpoint without scheme"),
    Variable(f"{OTLP}CERTIFICATE", READABLE_FILE, None, "CA certificates used to verify the collector", "system's"),
    Variable(f"{OTLP}CLIENT_CERTIFICATE", READABLE_FILE, None, "client certificate, for mutual TLS"),
    Variable(f"{OTLP}CLIENT_KEY", READABLE_FILE, None, "its private key"),
    Variable(
        f"{OTLP_METRICS}TEMPORALITY_PREFERENCE",
        one_of("cumulative", "delta", "lowmemory"),
        "cumulative",
        "whether metrics are running totals, or changes since the last export (`delta` and `lowmemory`)",
    ),
    Variable(
        f"{OTLP_METRICS}DEFAULT_HISTOGRAM_AGGREGATION",
        one_of("explicit_bucket_histogram", "base2_exponential_bucket_histogram"),
        "explicit_bucket_histogram",
        "the kind of histogram buckets",
    ),
    Variable(f"{JAEGER}ENDPOINT", URL, None, "the address of Jaeger", secret=True),
    Variable(f"{JAEGER}AGENT_HOST", STRING, None, "host of Jaeger, used without an endpoint", "localhost"),
    Variable(f"{JAEGER}AGENT_PORT", PORT, None, "port of a Jaeger agent (thrift-udp)", "6831"),
    Variable(f"{JAEGER}USER", STRING, None, "user name for Jaeger"),
    Variable(f"{JAEGER}PASSWORD", STRING, None, "password for Jaeger", secret=True),
    Variable(f"{JAEGER}TIMEOUT", TIMEOUT, 10.0, "longest time in seconds that one request to Jaeger may take"),
    Variable(f"{JAEGER}CERTIFICATE", READABLE_FILE, None, "CA certificates used to verify Jaeger", "system's"),
)
_ROWS = {row.name: row for row in VARIABLES}


def read(name: str, environ: Mapping[str, str], problem: Problem, signal: str = "traces") -> Any:
    """The value of a row of the table. An invalid value is reported, and the next form or the default applies.

    For OTLP, ``name`` is the general form; the form specific to ``signal`` takes precedence.
    """
    return read_with_source(name, environ, problem, signal)[0]


def read_with_source(
    name: str, environ: Mapping[str, str], problem: Problem, signal: str = "traces"
) -> tuple[Any, str | None]:
    """Like :func:`read`, with the variable that the value comes from, or None for the default."""
    row = _ROWS[name]
    return _chosen(row, row.forms(signal), environ, problem)


def _chosen(
    row: Variable, forms: Iterable[str], environ: Mapping[str, str], problem: Problem
) -> tuple[Any, str | None]:
    given = [Given(form, form, environ[form]) for form in forms if not empty(environ.get(form))]
    return choose(row.kind, given, row.default, problem, unset=row.unset or "none", secret=row.secret)


def markdown_table() -> str:
    """The variables as the table of the README."""
    return table_of_settings((row.name, row.text(row.default), row.default, row.meaning) for row in VARIABLES)


def check(environ: Mapping[str, str], problem: Problem, *, leaving_out: Iterable[str] = (OTLP, JAEGER)) -> None:
    """Report every invalid value, except of variables that begin with one of ``leaving_out``."""
    left_out = tuple(leaving_out)
    if not str(environ.get("OTEL_TRACES_SAMPLER", "")).strip().lower().endswith("traceidratio"):
        left_out += ("OTEL_TRACES_SAMPLER_ARG",)  # its meaning is defined by the sampler
    for row in VARIABLES:
        if row.name.startswith(left_out):
            continue
        if any(form in environ for form in row.forms()):
            read(row.name, environ, problem)
        _chosen(row, set(row.forms("metrics")) - set(row.forms()), environ, problem)


_READ_AT_IMPORT = "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"


def import_sdk() -> None:
    """Import ``opentelemetry.sdk.trace``.

    It reads one variable when it is imported, and raises ValueError if that is invalid: to a program that uses nothing
    but the API, or to a shipper. This package reads the limits itself, and reports invalid ones.
    """
    try:
        import opentelemetry.sdk.trace  # noqa: PLC0415  heavy
    except ValueError:
        # Not in the environment of the process, which threads of Ray in C++ read while Python would change it.
        known, key = vars(os.environ)["_data"], os.environ.encodekey(_READ_AT_IMPORT)
        value = known.pop(key, None)
        if value is None:
            raise
        try:
            import opentelemetry.sdk.trace  # noqa: F401, PLC0415
        finally:
            known[key] = value
