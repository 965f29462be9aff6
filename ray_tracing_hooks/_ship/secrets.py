"""Credentials of the environment, taken out of what is told.

What this package says by itself holds none. Installed exporters, and the libraries that they send with, quote URLs and
headers in their errors and logs.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from ray_tracing_hooks._secret_forms import QUERY, USER_INFO, VARIABLE

MASK = "********"

_SHORTEST = 4


class Secrets:
    """The credentials in some environments, by the names of their variables and in URLs."""

    def __init__(self, *environs: Mapping[str, str]) -> None:
        found = {secret for environ in environs for secret in _secrets(environ) if len(secret) >= _SHORTEST}
        # The longest first, so that no part of one is left.
        self._pattern = re.compile("|".join(map(re.escape, sorted(found, key=len, reverse=True)))) if found else None

    def mask(self, text: str) -> str:
        """The text without them, and without what stands in any URL before an ``@`` or as its query."""
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        return QUERY.sub(f"?{MASK}", USER_INFO.sub(f"{MASK}@", text))


def _secrets(environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in environ.items():
        if VARIABLE.search(name):
            yield from _forms([value])
        if name.upper().endswith("HEADERS"):
            yield from _forms(pair.partition("=")[2] or pair for pair in value.split(","))
        if "://" in value:
            yield from _in_url(value)


def _forms(values: Iterable[str]) -> Iterator[str]:
    """As they were written and as they are sent, and of ``Bearer x`` the last word."""
    for value in values:
        plain = unquote(value).strip()
        yield from (value.strip(), plain, plain.rpartition(" ")[2])


def _in_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    user, colon, password = parts.netloc.rpartition("@")[0].partition(":")
    if colon:
        yield from _forms([password])
        pair = f"{unquote(user)}:{unquote(password)}"
        yield base64.b64encode(pair.encode("utf-8", "surrogateescape")).decode()
    yield from (value for _, value in parse_qsl(parts.query))
