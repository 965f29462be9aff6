"""The settings: what they are called, what they may be, and what they are in this process.

:class:`Settings` is the only table. Each of its fields is an environment variable, ``RAY_TRACING_`` and the name in
capitals, and a key of the YAML file that ``RAY_TRACING_CONFIG`` names. A variable wins over the file, the file over the
default. An empty value counts as unset. Nothing is read when this module is imported.
"""

from __future__ import annotations

import math
import os
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, NamedTuple, TypeVar

from ray_tracing_hooks._errors import SettingError

PREFIX = "RAY_TRACING_"
_CONFIG = "config"

T = TypeVar("T")
D = TypeVar("D")


class Kind(Generic[T]):
    """A kind of value: what to tell a user who gave something else, how it is read, and how it is written.

    ``read`` takes the text of a variable, or whatever YAML made of a value, and raises ValueError for what it does not
    understand. ``write`` gives the text that reads as the same value.
    """

    __slots__ = ("expected", "read", "write")

    def __init__(self, expected: str, read: Callable[[object], T], write: Callable[[T], str] = str) -> None:
        self.expected = expected
        self.read = read
        self.write = write


class Setting(NamedTuple):
    """One row of the table. A ``default`` of None means unset, and then ``unset`` says what happens."""

    name: str
    variable: str
    kind: Kind[Any]
    default: Any
    meaning: str
    unset: str = ""

    def text(self, value: object) -> str:
        """The value as a user would write it; for None, what being unset means."""
        return self.unset if value is None else self.kind.write(value)


def _scalar(value: object) -> str:
    """The text of a string, or of a number or boolean of YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value).strip()
    raise ValueError


def _read_path(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError
    try:
        return os.path.abspath(os.path.expanduser(value.strip()))
    except OSError as error:  # a relative path, and the working directory is gone
        raise ValueError from error


def _read_list(value: object) -> tuple[str, ...]:
    items = [_scalar(item) for item in value] if isinstance(value, list) else _scalar(value).split(",")
    names = tuple(dict.fromkeys(stripped for item in items if (stripped := item.strip())))
    if not names:
        raise ValueError
    return names


def _read_names(value: object) -> tuple[str, ...]:
    names = _read_list(value)
    if "none" not in names:
        return names
    if len(names) > 1:
        raise ValueError
    return ()


def _read_seconds(value: object) -> float:
    seconds = float(_scalar(value))
    if not 0 <= seconds < math.inf:
        raise ValueError
    return seconds


def _read_boolean(value: object) -> bool:
    text = _scalar(value).lower()
    if text in {"1", "true", "yes", "on"}:
        return True
    if text in {"0", "false", "no", "off"}:
        return False
    raise ValueError


_SIZE = re.compile(r"(\d{1,20})(\.\d{1,20})?\s*(?:([kmgt])(i?))?b?", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def _read_size(value: object) -> int:
    match = _SIZE.fullmatch(_scalar(value))
    if match is None:
        raise ValueError
    whole, fraction, letter, binary = match.groups()
    unit: int = (1024 if binary else 1000) ** _POWERS[(letter or "").lower()]
    size = int(whole) * unit + int(float(fraction or 0) * unit)
    if size < 1:
        raise ValueError
    return size


def _write_size(size: int) -> str:
    for letter, power in reversed(_POWERS.items()):
        if letter and size % 1024**power == 0:
            return f"{size // 1024**power} {letter.upper()}iB"
    return str(size)


def _one_of(*allowed: str) -> Kind[frozenset[str]]:
    def read(value: object) -> frozenset[str]:
        chosen = frozenset(_read_names(value))
        if not chosen <= set(allowed):
            raise ValueError
        return chosen

    def write(chosen: frozenset[str]) -> str:
        return ",".join(name for name in allowed if name in chosen) or "none"

    return Kind(f"a comma list of {', '.join(allowed)}, or none alone", read, write)


PATH = Kind("a path, such as /var/tmp/traces", _read_path)
NAMES = Kind(
    "a comma list of names, such as local, or none alone", _read_names, lambda names: ",".join(names) or "none"
)
PATTERNS = Kind("a comma list of patterns, such as mymodule.*,Trainer.step", _read_list, ",".join)
SECONDS = Kind(
    "a number of seconds of 0 or more, such as 5", _read_seconds, lambda seconds: repr(seconds).removesuffix(".0")
)
BOOLEAN = Kind("1 or 0 (or true, false, yes, no, on, off)", _read_boolean, lambda value: str(int(value)))
SIZE = Kind("a size above 0, such as 64 MiB, 500 kB or a number of bytes", _read_size, _write_size)
PARTS = _one_of("task", "actor")


def _setting(kind: Kind[T], default: D, meaning: str, unset: str = "") -> T | D:
    found: T | D = field(default=default, metadata={"kind": kind, "meaning": meaning, "unset": unset})
    return found


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a process. Sizes are in bytes, times in seconds, paths absolute; what stands here is right."""

    exporters: tuple[str, ...] = _setting(
        NAMES, ("local",), "where `ray_tracing_hooks:setup` sends spans: comma list of exporters, or `none`"
    )
    config: str | None = _setting(PATH, None, "YAML file with these settings, as `local_dir: /data/spans`")
    local_dir: str = _setting(PATH, "/tmp/spans", "folder of the local exporter's files")  # noqa: S108 - the contract
    local_file_max_bytes: int = _setting(SIZE, 64 << 20, "size at which the local exporter begins a new file")
    local_max_bytes: int = _setting(
        SIZE, 10 << 30, "what the local exporter's files may take together; past it the oldest go"
    )
    spool_dir: str | None = _setting(
        PATH, None, "folder where spans wait on a node until they are delivered", "under Ray's session folder"
    )
    spool_max_bytes: int = _setting(SIZE, 1 << 30, "what the spool of a node may take; past it the oldest spans go")
    flush_timeout: float = _setting(SECONDS, 5.0, "seconds that a driver's exit waits for delivery")
    ray: frozenset[str] = _setting(
        PARTS, frozenset({"task", "actor"}), "parts of Ray that make spans: comma list of `task`, `actor`; or `none`"
    )
    include: tuple[str, ...] = _setting(
        PATTERNS, (), "patterns on `module.function` and `Class.method`: nothing else makes spans"
    )
    exclude: tuple[str, ...] = _setting(
        PATTERNS, (), "patterns on `module.function` and `Class.method`: these make no spans"
    )
    root_span: bool = _setting(BOOLEAN, True, "one root span per driver, so that a script is one trace")
    strict: bool = _setting(BOOLEAN, False, "raise where tracing fails, instead of going on without it")


SETTINGS: tuple[Setting, ...] = tuple(
    Setting(name=row.name, variable=PREFIX + row.name.upper(), default=row.default, **row.metadata)
    for row in fields(Settings)
)


def load(environ: Mapping[str, str], problem: Callable[[str], None]) -> Settings:
    """The settings that ``environ`` and the YAML file it names ask for. Never raises.

    What is wrong is left out, and ``problem`` is called with one sentence for each wrong thing: where it stands, what
    was given, what is expected, and what is used instead.
    """
    return load_with_sources(environ, problem)[0]


def load_with_sources(environ: Mapping[str, str], problem: Callable[[str], None]) -> tuple[Settings, dict[str, str]]:
    """As :func:`load`, and by name where each value comes from: a variable, the path of the file, or ``default``."""
    others = {setting.name: setting for setting in SETTINGS}
    config = others.pop(_CONFIG)
    file, source = _choose(config, _from_variable(config, environ), problem)
    values, sources = {_CONFIG: file}, {_CONFIG: source}
    in_file: Mapping[object, object] = {}
    if file is not None:
        try:
            in_file = _contents(file)
        except SettingError as error:
            problem(str(error))
    for name, setting in others.items():
        given = _from_variable(setting, environ)
        if not _empty(in_file.get(name)):
            given.append(_Given(file, f"{file}: {name}", in_file[name]))
        values[name], sources[name] = _choose(setting, given, problem)
    _report_unknown(environ, in_file, file, problem)
    return Settings(**values), sources


def markdown_table() -> str:
    """The settings as the table of the README."""
    rows = ["| variable | default | meaning |", "| --- | --- | --- |"]
    for setting in SETTINGS:
        text = setting.text(setting.default)
        default = f"`{text}`" if text and setting.default is not None else text
        rows.append(f"| `{setting.variable}` | {default} | {setting.meaning} |".replace("|  |", "| |"))
    return "\n".join(rows) + "\n"


class _Given(NamedTuple):
    """A value that the user gave: where, what that place is called in a sentence, and the value."""

    source: str
    label: str
    value: object


def _empty(value: object) -> bool:
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def _from_variable(setting: Setting, environ: Mapping[str, str]) -> list[_Given]:
    value = environ.get(setting.variable)
    return [] if _empty(value) else [_Given(setting.variable, setting.variable, value)]


def _choose(setting: Setting, given: list[_Given], problem: Callable[[str], None]) -> tuple[Any, str]:
    """The first given value that can be read, or the default, and its source; those that cannot are reported."""
    value, source = setting.default, "default"
    wrong = []
    for candidate in reversed(given):
        try:
            value, source = setting.kind.read(candidate.value), candidate.source
        except ValueError:
            wrong.append(candidate)
    for candidate in reversed(wrong):
        problem(
            f"{candidate.label}={_shown(candidate.value)} is ignored: expected {setting.kind.expected}; "
            f"using {setting.text(value) or 'none'}."
        )
    return value, source


def _contents(file: str) -> Mapping[object, object]:
    """The mapping in a YAML file; an empty file holds an empty one. Raises SettingError."""
    import yaml  # noqa: PLC0415 - only who names a file pays for it

    ignored = f"{PREFIX}{_CONFIG.upper()}={_shown(file)} is ignored"
    instead = "using the variables and defaults."
    try:
        with open(file, "rb") as stream:
            contents = yaml.safe_load(stream)
    except OSError as error:
        raise SettingError(f"{ignored}: the file cannot be read ({error.strerror}); {instead}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date or number that does not exist
        reason = " ".join(str(error).split())
        raise SettingError(f"{ignored}: the file is not YAML that can be read ({reason}); {instead}") from error
    if contents is None:
        return {}
    if not isinstance(contents, dict):
        expected = "expected settings and their values, such as 'local_dir: /data/spans'"
        raise SettingError(f"{ignored}: {expected}, but the file holds {_shown(contents)}; {instead}")
    return contents


def _report_unknown(
    environ: Mapping[str, str], in_file: Mapping[object, object], file: str | None, problem: Callable[[str], None]
) -> None:
    variables = {setting.variable.removeprefix(PREFIX): setting.variable for setting in SETTINGS}
    for variable, value in environ.items():
        name = variable.removeprefix(PREFIX)
        if name != variable and name not in variables and not _empty(value):
            # Without its value: nobody knows what that is, and a log is no place for what may be a password.
            problem(f"unknown variable {variable} is ignored; {_closest(name.upper(), variables)}")
    keys = {setting.name: repr(setting.name) for setting in SETTINGS if setting.name != _CONFIG}
    for key in in_file:
        if key not in keys:
            problem(f"{file}: unknown setting {_shown(key)} is ignored; {_closest(str(key).lower(), keys)}")


def _closest(wrong: str, right: Mapping[str, str]) -> str:
    import difflib  # noqa: PLC0415 - only who mistyped something pays for it

    matches = difflib.get_close_matches(wrong, right, n=1)
    return f"did you mean {right[matches[0]]}?" if matches else "`ray-tracing-hooks config` lists what there is."


def _shown(value: object) -> str:
    """A value as Python writes it, cut short: YAML can nest and repeat values to any size."""
    writer = reprlib.Repr()
    writer.maxlevel, writer.maxstring, writer.maxother = 3, 200, 200
    try:
        return writer.repr(value)
    except ValueError:  # an integer with more digits than Python writes
        return "a number with too many digits"
