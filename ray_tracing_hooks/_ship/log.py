"""The log of the shipper, of installed exporters and of the libraries that they use."""

from __future__ import annotations

import base64
import contextlib
import io
import logging
import logging.handlers
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from urllib.parse import parse_qsl, unquote, urlsplit

from ray_tracing_hooks._safety.guard import safe
from ray_tracing_hooks._safety.private import open_file, share
from ray_tracing_hooks._safety.secrets import QUERY, USER_INFO, VARIABLE
from ray_tracing_hooks._settings.values import MASK, copied
from ray_tracing_hooks._ship.problems import logger

_LOG_BYTES = 1024 * 1024
_LOG_AGAIN = 600.0
_MOST_KEYS = 1000

_Error = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def log_to(path: str | None, secrets: Secrets, group: int | None = None) -> str | None:
    """Write the log of this process to this file, with ``secrets`` masked, for a ``group`` to read if possible.

    Returns a problem with the file, or None.
    """
    logger.setLevel(logging.INFO)
    logging.raiseExceptions = False
    handler: logging.Handler = logging.NullHandler()
    problem = None
    if path is not None:
        try:
            handler = _PrivateFile(path, group)
        except OSError as error:
            problem = f"delivery is not logged: {path!r} cannot be written to: {error.strerror}"
    handler.setFormatter(_SafeFormatter(secrets))
    handler.addFilter(_Seldom())
    # At the root logger, for installed exporters and the libraries that they use.
    logging.getLogger().addHandler(handler)
    return problem


@contextmanager
def others_on_stderr(secrets: Secrets) -> Iterator[None]:
    """Print what installed exporters and their libraries log meanwhile, with ``secrets`` masked."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(_SafeFormatter(secrets, "%(name)s: %(message)s"))
    handler.addFilter(lambda record: record.name != logger.name)
    handler.addFilter(_Seldom())
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


class _PrivateFile(logging.handlers.RotatingFileHandler):
    """A log file in a folder that other users may write to: it must be a file of this user."""

    def __init__(self, path: str, group: int | None) -> None:
        self._group = group
        super().__init__(path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8")

    def _open(self) -> io.TextIOWrapper:
        descriptor = open_file(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        if self._group is not None:
            with contextlib.suppress(OSError):  # the sink reports it
                share(descriptor, self._group)
        return open(descriptor, "a", encoding=self.encoding)


class _SafeFormatter(logging.Formatter):
    """Escapes messages, which may quote a server, so that each takes one line."""

    def __init__(self, secrets: Secrets, form: str = "%(asctime)s %(process)d %(levelname)s %(message)s") -> None:
        super().__init__(form)
        self._secrets = secrets

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  the name is that of logging
        return safe(self._secrets.mask(super().formatMessage(record)))

    def formatException(self, ei: _Error) -> str:  # noqa: N802  as above
        text = self._secrets.mask(super().formatException(ei))
        return "\n".join(map(safe, text.splitlines()))


class _Seldom(logging.Filter):
    """Passes each message of other loggers once in :data:`_LOG_AGAIN` seconds: some exporters log every attempt."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name == logger.name:
            return True
        key = (record.name, str(record.msg))
        if record.created - self._last.get(key, 0.0) < _LOG_AGAIN:
            return False
        if len(self._last) > _MOST_KEYS:
            self._last.clear()
        self._last[key] = record.created
        return True


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
