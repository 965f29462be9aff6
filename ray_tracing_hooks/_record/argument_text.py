"""Renders arguments and results as short text, without running user code and without likely secrets.

Only values of built-in types are shown, and the shape of arrays. Any other object is shown by the name of its class,
since its ``repr`` may do anything and take any time.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Any
from urllib.parse import unquote_plus

from ray_tracing_hooks._safety.secrets import TEXT, is_name_of_secret

MASK = "***"

MOST_CHARACTERS = 1024
"""Longest text of all arguments together, or of a result."""

_MOST_TEXT = 100
"""Longest single text value."""

_MOST_ITEMS, _MOST_LEVELS, _MOST_VALUES = 8, 3, 100
"""Limits per container, on nesting, and for all values together."""

_MOST_DIGITS = 40

_SEARCHED = 4096
"""How many characters of a text are searched for a secret: more than are shown, since one may start in that part."""

_LONGEST_NAME = 64
"""Longest text that may be the name of the value after it, as in ``("password", "hunter2")``."""

# Without attribute access on the class, whose metaclass may be the user's.
_module_of = type.__dict__["__module__"].__get__
_name_of = type.__dict__["__qualname__"].__get__


class Redactor:
    """Renders arguments and results, and redacts secrets.

    Args:
        patterns: Further patterns, in the syntax of file names and ignoring case, beside the usual names and forms of
            secrets: a parameter or key that matches one is redacted, and so is a text that does.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._own = re.compile("|".join(map(translate, patterns)) or r"(?!)", re.IGNORECASE | re.DOTALL)

    def arguments(self, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """The arguments of a call, such as ``path='file', retries=3``.

        ``names`` are the positional parameters; if the last one begins with ``*``, all further arguments belong to it.
        """

        def each() -> Iterator[str]:
            left, before = _Left(), None
            for index, value in enumerate(args):
                name = names[min(index, len(names) - 1)] if names else ""
                shown = MASK if _announces(before) else self._named(name.lstrip("*"), value, left)
                before = value
                yield shown if name.startswith("*") or not name else f"{name}={shown}"
            for key, value in kwargs.items():
                yield f"{key}={self._named(key, value, left)}"

        return _joined(each())

    def result(self, function: str, value: Any) -> str:
        """The result of a function, whose name counts as the name of the value."""
        return _joined([self._named(function, value, _Left())])

    def text(self, value: str, most: int) -> str:
        """At most ``most`` characters of a text, which says so if it was cut. One with a secret is redacted."""
        # A search takes milliseconds for a long text.
        searched = value[: most + _SEARCHED] if most else ""
        if TEXT.search(searched) or self._own.fullmatch(searched):
            return MASK
        return value if len(value) <= most else f"{value[:most]}... ({len(value):,} characters)"

    def query(self, query: str) -> str:
        """The query of a URL, such as ``page=2&token=***``."""
        parts = query[:_SEARCHED].split("&")[:_MOST_VALUES]
        shown = "&".join(map(self._part_of_query, parts))
        return shown if len(shown) <= MOST_CHARACTERS else shown[: MOST_CHARACTERS - 3] + "..."

    def _part_of_query(self, part: str) -> str:
        name, equals, value = part.partition("=")
        known, text = unquote_plus(name), unquote_plus(value)
        is_hidden = (
            (equals and (is_name_of_secret(known) or self._own.fullmatch(known)))
            or TEXT.search(f"?{unquote_plus(part)}")
            or self._own.fullmatch(text)
        )
        return f"{name}={MASK}" if equals and is_hidden else MASK if is_hidden else part

    def _named(self, name: str, value: Any, left: _Left, level: int = 0) -> str:
        if value is None or value is True or value is False:
            return repr(value)
        name = name[:_SEARCHED]
        return MASK if is_name_of_secret(name) or self._own.fullmatch(name) else self._show(value, left, level)

    def _show(self, value: Any, left: _Left, level: int) -> str:
        kind = type(value)
        left.values -= 1
        if left.values < 0:
            return "..."
        if kind is str:
            return self._text(value)
        if kind is int:
            return repr(value) if value.bit_length() < 3 * _MOST_DIGITS else f"<int of {value.bit_length()} bits>"
        if kind is float or kind is bool or kind is complex or value is None or value is ...:
            return repr(value)
        if kind is bytes or kind is bytearray:
            return f"<{_name_of(kind)} of {len(value)}>"
        if kind is list or kind is tuple or kind is dict or kind is set or kind is frozenset:
            return self._contained(value, kind, left, level)
        return _of_other(value, kind)

    def _text(self, value: str) -> str:
        searched = value[:_SEARCHED]
        if TEXT.search(searched) or self._own.fullmatch(searched):
            return MASK
        return repr(value) if len(value) <= _MOST_TEXT else f"{value[:_MOST_TEXT]!r}... ({len(value)} characters)"

    def _contained(self, value: Any, kind: type, left: _Left, level: int) -> str:
        count, name = len(value), _name_of(kind)
        if level >= _MOST_LEVELS:
            return f"<{name} of {count}>"
        shown = []
        before, is_announced = None, False
        try:
            for index, each in enumerate(value.items() if kind is dict else value):
                if index >= _MOST_ITEMS:
                    shown.append(f"... ({count} items)")
                    break
                if kind is dict:
                    key, item = each
                    shown_key = self._show(key, left, level + 1)
                    named = MASK if is_announced else self._named(_name_in(key, shown_key), item, left, level + 1)
                    shown.append(f"{shown_key}: {named}")
                    # As in {"name": "DB_PASSWORD", "value": "hunter2"}.
                    is_announced = is_announced or _announces(item)
                else:
                    # As in ["--password", "hunter2"].
                    is_announced = (kind is list or kind is tuple) and _announces(before)
                    shown.append(MASK if is_announced else self._show(each, left, level + 1))
                    before = each
        except RuntimeError:  # another thread has changed it
            return f"<{name} of {count}>"
        return _BRACKETS[name].format(", ".join(shown))


def _announces(value: Any) -> bool:
    """Whether ``value`` is a text that names the next value as a secret."""
    return type(value) is str and len(value) <= _LONGEST_NAME and is_name_of_secret(value)


def _name_in(key: Any, shown: str) -> str:
    """The name in a dictionary's key."""
    if type(key) is str:
        return key
    return key[:_SEARCHED].decode("latin-1") if type(key) is bytes else shown


class _Left:
    """Counts how many more values may be shown."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = _MOST_VALUES


_BRACKETS = {"list": "[{}]", "tuple": "({})", "dict": "{{{}}}", "set": "set({})", "frozenset": "frozenset({})"}

_SHAPED = (("numpy", "ndarray"), ("torch", "Tensor"), ("pandas", "DataFrame"), ("pandas", "Series"))


def _of_other(value: Any, kind: type) -> str:
    for module, name in _SHAPED:
        if kind is getattr(sys.modules.get(module), name, None):
            of_what = f" {value.dtype}" if name != "DataFrame" else ""
            return f"<{module}.{name}{of_what} {tuple(value.shape)}>"
    module, name = _module_of(kind), _name_of(kind)
    return f"<{module}.{name}>" if type(module) is str else f"<{name}>"


def _joined(shown: Iterable[str]) -> str:
    parts, length = [], 0
    for each in shown:
        parts.append(each)
        length += len(each) + 2
        if length > MOST_CHARACTERS:
            break
    text = ", ".join(parts)
    return text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 3] + "..."
