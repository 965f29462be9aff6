"""Kinds of values of settings: how they are parsed, reported if invalid, and written."""

from __future__ import annotations

import math
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")
N = TypeVar("N", int, float)

MASK = "********"
"""Shown in place of a secret."""

MOST_SECONDS = 10**9
"""Ray, gRPC and the system cannot wait for much longer."""


class Kind(Generic[T]):
    """A kind of value: what is expected, for the report of an invalid one; how it is parsed; how it is written.

    ``read`` takes the text of a variable, or a value that YAML has parsed, and raises ValueError for an invalid one.
    ``write`` gives a text that reads as the same value.
    """

    __slots__ = ("expected", "read", "write")

    def __init__(self, expected: str, read: Callable[[object], T], write: Callable[[T], str] = str) -> None:
        self.expected = expected
        self.read = read
        self.write = write


class PartlyWrongError(ValueError):
    """Raised by ``read``: only ``rest`` of the value is valid. The text says what is ignored, without secrets."""

    def __init__(self, text: str, rest: Any) -> None:
        super().__init__(text)
        self.rest = rest


class Hint(str):
    """A problem of a setting that is followed nevertheless, such as an address without a scheme.

    Any other problem is a plain text: something that the user asked for is not done.
    """

    __slots__ = ()


def hint(problem: Callable[[str], None], text: str) -> None:
    problem(Hint(text))


class Given(NamedTuple):
    """A value that the user set: its source, the name of the source in a message, and the value."""

    source: str
    label: str
    value: object


def copied(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables as they are now.

    Iterating over the items of ``os.environ`` fails if another thread removes one meanwhile.
    """
    return {name: value for name in environ if (value := environ.get(name)) is not None}


def empty(value: object) -> bool:
    """Whether the value counts as unset."""
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def choose(
    kind: Kind[Any],
    given: Sequence[Given],
    default: Any,
    problem: Callable[[str], None],
    *,
    unset: str = "none",
    secret: bool = False,
) -> tuple[Any, str | None]:
    """The first valid value and its source, or the default and None; invalid ones are reported.

    ``unset`` says what a default of None means. A ``secret`` is not shown, except a URL, whose credentials are hidden.
    """
    value, source = default, None
    wrong = []
    for candidate in reversed(given):
        try:
            value, source = kind.read(candidate.value), candidate.source
        except PartlyWrongError as error:
            value, source = error.rest, candidate.source
            problem(f"{candidate.label}: {error}; the rest is used.")
        except ValueError as error:
            wrong.append((candidate, "it is not valid Unicode; " if isinstance(error, UnicodeError) else ""))
    for candidate, why in reversed(wrong):
        instead = unset if value is None else "another value" if secret else kind.write(value) or unset
        if not secret:
            shown_value = f"{candidate.label}={shown(candidate.value)}"
        elif kind is URL and isinstance(candidate.value, str):
            shown_value = f"{candidate.label}={shown(without_credentials(candidate.value))}"
        else:
            shown_value = f"{candidate.label} (not shown)"
        problem(f"{shown_value} is ignored: {why}expected {kind.expected}; using {instead}.")
    return value, source


def scalar(value: object) -> str:
    """The text of a string, or of a number or boolean of YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return unicode(str(value)).strip()
    raise ValueError


def unicode(text: str) -> str:
    """The text. Raises UnicodeError if it is none that can be sent: bytes of a variable that are not UTF-8, or halves
    of characters, which YAML can write.
    """
    text.encode()
    return text


def _read_path(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError
    os.fsencode(value)  # bytes that are not UTF-8 are allowed, halves of characters are not
    try:
        return os.path.abspath(os.path.expanduser(value.strip()))
    except OSError as error:  # a relative path, and the working directory no longer exists
        raise ValueError from error


SESSION = "session"
"""In place of a folder: one in the folder of logs of Ray's session, on each node."""


def latest_session() -> str:
    """The path of the newest session of Ray on this machine, by the variables that Ray reads (``_common/utils.py``)."""
    system = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  Ray's own
    return os.path.join(system, "ray", "session_latest")


def _read_folder(value: object) -> str:
    return SESSION if isinstance(value, str) and value.strip() == SESSION else _read_path(value)


def read_list(value: object) -> tuple[str, ...]:
    items = [scalar(item) for item in value] if isinstance(value, list) else scalar(value).split(",")
    names = tuple(dict.fromkeys(stripped for item in items if (stripped := item.strip())))
    if not names:
        raise ValueError
    return names


def _read_names(value: object) -> tuple[str, ...]:
    names = read_list(value)
    if "none" not in names:
        return names
    if len(names) > 1:
        raise ValueError
    return ()


def within(number: N, least: float, most: float) -> N:
    """The number. Raises ValueError if it is not from ``least`` to ``most``."""
    if not least <= number <= most:
        raise ValueError
    return number


def _read_seconds(value: object) -> float:
    return within(float(scalar(value)), 0, MOST_SECONDS)


def _read_rates(value: object) -> tuple[tuple[str, float], ...]:
    rates, of_others = [], ""
    for item in read_list(value):
        pattern, equals, rate = item.rpartition("=")
        if not equals:
            of_others = of_others or item
        elif pattern := pattern.strip():
            rates.append((pattern, _read_rate(rate)))
        else:
            raise ValueError
    return (*rates, ("*", _read_rate(of_others))) if of_others else tuple(rates)


def _read_rate(text: str) -> float:
    rate = float(text)
    # Lower rates would amount to no calls at all.
    if not 1e-5 <= rate < math.inf:
        raise ValueError
    return rate


def write_number(number: float) -> str:
    return repr(number).removesuffix(".0")


def _read_boolean(value: object) -> bool:
    text = scalar(value).lower()
    if text in {"1", "true", "yes", "on"}:
        return True
    if text in {"0", "false", "no", "off"}:
        return False
    raise ValueError


_SIZE = r"(\d{1,20})(\.\d{1,20})?\s*(?:([kmgt])(i?))?b?"
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def _read_size(value: object) -> int:
    match = re.fullmatch(_SIZE, scalar(value), re.ASCII | re.IGNORECASE)
    if match is None:
        raise ValueError
    whole, fraction, letter, binary = match.groups()
    unit: int = (1024 if binary else 1000) ** _POWERS[(letter or "").lower()]
    return within(int(whole) * unit + int(float(fraction or 0) * unit), 1, math.inf)


def _write_size(size: int) -> str:
    for letter, power in reversed(_POWERS.items()):
        if letter and size % 1024**power == 0:
            return f"{size // 1024**power} {letter.upper()}iB"
    return str(size)


_MOST_GROUP = 2**32 - 2
"""The largest id of a group: the next one means none."""


def _read_group(value: object) -> int:
    text = scalar(value)
    if text.isascii() and text.isdigit():
        group = int(text)
    else:
        import grp  # noqa: PLC0415  few processes need it

        try:
            group = grp.getgrnam(text).gr_gid
        except KeyError:
            raise ValueError from None
    return within(group, 0, _MOST_GROUP)


def any_of(*allowed: str, default: frozenset[str]) -> Kind[frozenset[str]]:
    def read(value: object) -> frozenset[str]:
        added = isinstance(value, str) and value.strip().startswith("+")
        chosen = frozenset(_read_names(value.strip()[1:] if isinstance(value, str) and added else value))
        if not chosen <= set(allowed) or (added and not chosen):
            raise ValueError
        return chosen | default if added else chosen

    def write(chosen: frozenset[str]) -> str:
        return ",".join(name for name in allowed if name in chosen) or "none"

    names = ", ".join(allowed)
    return Kind(
        f"a comma-separated list of {names}, a plus sign before it adds to the default; or none alone", read, write
    )


def one_of(*allowed: str) -> Kind[str]:
    def read(value: object) -> str:
        text = scalar(value).lower()
        if text not in allowed:
            raise ValueError
        return text

    return Kind(f"one of {', '.join(allowed)}", read)


_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def _read_level(value: object) -> str:
    level = scalar(value).upper()
    if level not in _LEVELS:
        raise ValueError
    return level


def read_url(value: object) -> str:
    """The URL, or the ``host:port``, as given."""
    from urllib.parse import urlsplit  # noqa: PLC0415  few processes need it

    text = scalar(value)
    if re.search(r"[\s\x00-\x1f]", text):
        raise ValueError
    if text.startswith("unix:"):
        return text
    parts = urlsplit(text if "://" in text else f"//{text}")
    if parts.scheme not in {"", "http", "https"} or not parts.hostname or parts.port == 0:
        raise ValueError
    return text


def _read_listening(value: object) -> str:
    """``host:port``."""
    from urllib.parse import urlsplit  # noqa: PLC0415  few processes need it

    text = scalar(value)
    parts = urlsplit(f"//127.0.0.1:{text}" if text.isascii() and text.isdigit() else f"//{text}")
    if parts.path or parts.username is not None or not parts.hostname or not parts.port:
        raise ValueError
    return f"[{parts.hostname}]:{parts.port}" if ":" in parts.hostname else f"{parts.hostname}:{parts.port}"


STORE = "parquet:"
"""Before a place: a store of runs is written there, instead of files as they are."""


def _read_place(value: object) -> str:
    text = scalar(value)
    place = text.removeprefix(STORE)
    if place.startswith(("/", "~")):
        return text[: len(text) - len(place)] + _read_path(place)
    if re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s\x00-\x1f]+", place):
        return text
    raise ValueError


def _read_trace_url(value: object) -> str:
    text = scalar(value)
    if not re.fullmatch(r"https?://[^\s\x00-\x1f]+", text) or TRACE_ID not in text:
        raise ValueError
    return text


TRACE_ID, SPAN_ID = "{trace_id}", "{span_id}"
"""What an address of a trace has in place of the ids."""

PATH = Kind("a path, such as /var/tmp/traces", _read_path)
FOLDER = Kind("a path, such as /var/tmp/traces, or session", _read_folder)
NAMES = Kind(
    "a comma-separated list of names, such as local, or none alone",
    _read_names,
    lambda names: ",".join(names) or "none",
)
PATTERNS = Kind("a comma-separated list of patterns, such as mymodule.*,Trainer.step", read_list, ",".join)
SECONDS = Kind(f"a number of seconds from 0 to {MOST_SECONDS:,}, such as 5", _read_seconds, write_number)
RATES: Kind[tuple[tuple[str, float], ...]] = Kind(
    "calls a second above 0, such as 10, or a comma-separated list with patterns, such as Worker.process=10,*=1000",
    _read_rates,
    lambda rates: ",".join(f"{pattern}={write_number(rate)}" for pattern, rate in rates),
)
BOOLEAN = Kind("1 or 0 (or true, false, yes, no, on, off)", _read_boolean, lambda value: str(int(value)))
LEVEL = Kind(f"one of {', '.join(_LEVELS)}", _read_level)
URL = Kind("a URL, such as http://collector:4317", read_url)
TRACE_URL: Kind[str] = Kind(
    f"an address that begins with http and contains {TRACE_ID}, such as https://jaeger.example.com/trace/{TRACE_ID}",
    _read_trace_url,
)
PLACE: Kind[str] = Kind("an absolute path, such as /data/spans, or a URL, such as s3://bucket/spans", _read_place)
LISTENING: Kind[str] = Kind("a port, such as 9464, or an address, such as 0.0.0.0:9464", _read_listening)
GROUP = Kind("a group of this machine, by its number or its name", _read_group)
SIZE = Kind("a size above 0, such as 64 MiB, 500 kB or a number of bytes", _read_size, _write_size)


def shown(value: object) -> str:
    """The ``repr`` of a value, truncated: YAML can nest and repeat values to any size."""
    if isinstance(value, str) and "-----BEGIN" in value:
        return "a PEM text"  # it may be a private key, set where the path of its file is expected
    writer = reprlib.Repr()
    writer.maxlevel, writer.maxstring, writer.maxother = 3, 200, 200
    try:
        return writer.repr(value)
    except ValueError:  # an integer with more digits than Python converts
        return "a number with too many digits"


def masked(kind: Kind[Any], value: Any) -> Any:
    """A value of a setting that may hold secrets, for a text: of a URL its credentials and its query are hidden, of
    headers and other mappings the values, and of everything else all.
    """
    if value is None:
        return None
    if isinstance(value, Mapping):
        return dict.fromkeys(value, MASK)
    return without_credentials(value) if kind is URL else MASK


def without_credentials(url: str) -> str:
    """A URL, or ``host:port``, with its user info and its query hidden, since both may contain keys."""
    masked = re.sub(r"^([^/@?]*://)?.*@", rf"\1{MASK}@", url)
    return re.sub(r"\?.+", f"?{MASK}", masked)


def table_of_settings(rows: Iterable[tuple[str, str, object, str]]) -> str:
    """Variables, their defaults as text and as values, and their meanings, as a table of the README."""
    lines = ["| variable | default | meaning |", "| --- | --- | --- |"]
    for variable, text, default, meaning in rows:
        shown_default = f"`{text}`" if text and default is not None else text
        lines.append(f"| `{variable}` | {shown_default} | {meaning} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"
