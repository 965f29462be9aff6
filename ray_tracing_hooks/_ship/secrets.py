"""Masks credentials of the environment in logs and messages.

The messages of this package itself contain none, but installed exporters and their libraries quote URLs and headers in
errors and logs.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from ray_tracing_hooks._secret_forms import QUERY, USER_INFO, VARIABLE
from ray_tracing_hooks._values import MASK, copied

_SHORTEST = 4


class Secrets:
    """The credentials in some environments, found by the names of the variables and in URLs."""

    def __init__(self, *environs: Mapping[str, str]) -> None:
        found = {secret for environ in environs for secret in _secrets(environ) if len(secret) >= _SHORTEST}
        # The longest first, so that no part of a secret remains.
        self._pattern = re.compile("|".join(map(re.escape, sorted(found, key=len, reverse=True)))) if found else None

    def mask(self, text: str) -> str:
        """The text with the credentials masked, and with the user info and query of any URL masked."""
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        return QUERY.sub(f"?{MASK}", USER_INFO.sub(f"{MASK}@", text))


def _secrets(environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in copied(environ).items():
        if VARIABLE.search(name):
            yield from _forms([value])
        if name.upper().endswith("HEADERS"):
            yield from _forms(pair.partition("=")[2] or pair for pair in value.split(","))
        if "://" in value:
            yield from _in_url(value)


def _forms(values: Iterable[str]) -> Iterator[str]:
    """The values as written and as sent, and the last word of values such as ``Bearer x``."""
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
