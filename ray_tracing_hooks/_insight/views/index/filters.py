"""The page's search and filter for spans that the page does not hold, with the same query language."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray_tracing_hooks._insight.model.call_names import call_name
from ray_tracing_hooks._insight.model.columns import SITE_KEYS
from ray_tracing_hooks._insight.model.span import CONSUMER, PRODUCER
from ray_tracing_hooks._insight.model.table import LOST, RUNNING, Table
from ray_tracing_hooks._insight.views.page.flags import FAILED, KIND, ON_PATH, STATE, STATE_SHIFT

_TOKEN = re.compile(r'(-?)((?:[^\s"]|"[^"]*")+)')
_LONGER = re.compile(r"([<>])=?(.+)", re.DOTALL)
_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(ns|us|µs|ms|s|m|h)")
_PAIR = re.compile(r"([^=]+)=(.*)", re.DOTALL)
_NAMES_SUFFIX = re.compile(r"ray\.|remote_worker", re.IGNORECASE)
"""A query with these also searches the suffixes that Ray adds to names."""

_UNITS = {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9}

_MOST_TOKENS = 20


class WrongError(ValueError):
    """A parameter of the request is missing or invalid."""


class UnsearchableError(WrongError):
    """The query needs something that is not among the columns."""


class Filters:
    """Decides which spans match a query."""

    def __init__(self, table: Table, columns: Mapping[str, Sequence[int]], meta: Mapping[str, Any]) -> None:
        self._table, self._columns, self._meta = table, columns, meta

    def keep(self, query: str) -> bytes | None:
        """One byte for each row of the table, None if all match. Raises UnsearchableError."""
        found: int | None = None
        size = len(self._table)
        for minus, text in _TOKEN.findall(query)[:_MOST_TOKENS]:
            plain = text.replace('"', "")
            passes = self._passes(plain) if plain else None
            if passes is None:
                continue
            mask = int.from_bytes(passes, "little")
            if minus:
                mask ^= int.from_bytes(b"\1" * size, "little")
            found = mask if found is None else found & mask
        return None if found is None else found.to_bytes(size, "little")

    def _passes(self, text: str) -> bytes | None:
        columns = self._columns
        if longer := _LONGER.fullmatch(text):
            limit = _duration(longer[2])
            if limit is None:
                return None
            fits = limit.__le__ if longer[1] == ">" else limit.__ge__
            return bytes(map(fits, map(float, columns["took"])))
        if text in _IS:
            return bytes(map(bytes(map(_IS[text], range(256))).__getitem__, columns["flags"]))
        if text.startswith("on:"):
            return self._on(matcher(text[3:]))
        if pair := _PAIR.fullmatch(text):
            return self._with(pair[1], pair[2])
        fits_name = matcher(text)
        # "worker" means a class or function, not the " ray.remote_worker" that ends the name of every execution.
        is_whole = _NAMES_SUFFIX.search(text)
        named = [name if is_whole else call_name(name) for name in self._meta["names"]]
        return _chosen([fits_name(name) for name in named], columns["name"])

    def _on(self, fits: Callable[[str], bool]) -> bytes:
        nodes, places = self._meta["nodes"], self._meta["places"]
        fit = [fits(f"{place['label']} {place['detail']} {nodes[place['node']]['label']}") for place in places]
        return _chosen([fit[place] for place in self._meta["lanes"]], self._columns["lane"])

    def _with(self, key: str, value: str) -> bytes:
        """The spans that have such an attribute, themselves or in their Resource."""
        table, fits = self._table, matcher(value)
        fits_key = matcher(key) if "*" in key else lambda name: name == key or name.endswith("." + key)
        keys = {name for resource in self._meta["resources"] for name in resource}
        if not any(map(fits_key, (*SITE_KEYS, *keys))):
            raise UnsearchableError(
                f"{key}: in a run of this size, only attributes of calls and of processes can be searched"
            )

        def has(attributes: Mapping[str, Any]) -> bool:
            return any(fits_key(name) and fits(_shown(given)) for name, given in attributes.items())

        of_site = _chosen([has(site) for site in table.sites], table.site)
        of_resource = _chosen([has(resource) for resource in table.resources], table.resource)
        joined = int.from_bytes(of_site, "little") | int.from_bytes(of_resource, "little")
        return joined.to_bytes(len(table), "little")


def _chosen(fits: Sequence[bool], column: Sequence[int]) -> bytes:
    return bytes(map(bytes(fits).__getitem__, column))


_IS: dict[str, Callable[[int], bool]] = {
    "is:error": lambda flags: bool(flags & FAILED),
    "is:running": lambda flags: flags >> STATE_SHIFT & STATE == RUNNING,
    "is:lost": lambda flags: flags >> STATE_SHIFT & STATE == LOST,
    "is:submission": lambda flags: flags & KIND == PRODUCER,
    "is:execution": lambda flags: flags & KIND == CONSUMER,
    "is:path": lambda flags: bool(flags & ON_PATH),
}


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text contains the pattern, ignoring case; ``*`` and ``?`` are wildcards."""
    wanted = pattern.lower()
    if not re.search("[*?]", wanted):
        return lambda text: wanted in text.lower()
    # Match the parts in order, each at its first occurrence, so that no pattern can cause exponential backtracking.
    parts = [
        re.compile("".join("." if letter == "?" else re.escape(letter) for letter in part), re.DOTALL)
        for part in re.split(r"\*+", wanted)
    ]

    def fits(text: str) -> bool:
        where, at = text.lower(), 0
        for part in parts:
            found = part.search(where, at)
            if not found:
                return False
            at = found.end()
        return True

    return fits


def _duration(text: str) -> float | None:
    found = _DURATION.fullmatch(text.strip())
    return float(found[1]) * _UNITS[found[2]] if found else None


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
