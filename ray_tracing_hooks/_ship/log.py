"""The problems of a shipper, which a flush reports too; and its log, with that of installed exporters."""

from __future__ import annotations

import base64
import contextlib
import io
import logging
import logging.handlers
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from urllib.parse import parse_qsl, unquote, urlsplit

from ray_tracing_hooks._safety.guard import safe
from ray_tracing_hooks._safety.private import open_file, share
from ray_tracing_hooks._safety.secrets import QUERY, USER_INFO, VARIABLE
from ray_tracing_hooks._settings.values import MASK, copied

_MOST_TEXTS = 5
_MOST_MESSAGES = 50

_LASTING = 10.0
"""Seconds after which a condition becomes a message: most short failures are over by then."""

_SINGULAR = {"were": "was", "are": "is", "could": "could"}
_PLURAL = re.compile(r"\{count\} ((?:log )?\w+)s (were|are|could)\b")

logger = logging.getLogger("ray_tracing_hooks.ship")


class Problems:
    """Conditions that last until they are cleared, losses that are counted, and messages that are reported once.

    Attributes:
        mask: Applied to all texts: a server may quote the key that it was sent.
    """

    def __init__(self, mask: Callable[[str], str] = str) -> None:
        self.mask = mask
        self._lock = threading.Lock()
        self._lasting: dict[str, str] = {}
        self._logged: dict[str, set[str]] = {}
        self._once: dict[str, bool] = {}
        self._counts: dict[str, int] = {}
        self._reported: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._announced: dict[str, str] = {}
        self._messages: deque[str] = deque(maxlen=_MOST_MESSAGES)
        self._numbers: Counter[str] = Counter()

    def set(self, key: str, text: str) -> None:
        """Report that something does not work at present."""
        text = self.mask(text)
        with self._lock:
            self._lasting[key] = text
            self._since.setdefault(key, time.monotonic())
            # An unavailable server may fail in alternating ways: each is logged once while it is unavailable.
            logged = self._logged.setdefault(key, set())
            if text in logged or len(logged) >= _MOST_TEXTS:
                return
            logged.add(text)
        logger.warning("%s", text)

    def clear(self, key: str) -> None:
        """Report that it works again."""
        with self._lock:
            text = self._lasting.pop(key, None)
            self._logged.pop(key, None)
            self._since.pop(key, None)
            if (reported := self._announced.pop(key, None)) is not None:
                self._add_message(f"no longer a problem: {reported}")
        if text is not None:
            logger.info("no longer a problem: %s", text)

    def warn_once(self, text: str) -> None:
        """Report something that does not change, such as an invalid setting, once however often this is called."""
        text = self.mask(text)
        with self._lock:
            if text in self._once:
                return
            self._once[text] = False
            self._add_message(text)
        logger.warning("%s", text)

    def count(self, text: str, number: int) -> None:
        """Add to the count of a loss; ``text`` has the placeholder ``{count}`` for the sum. Other braces are text."""
        if number <= 0:
            return
        text = self.mask(text)
        with self._lock:
            before = self._counts.get(text, 0)
            self._counts[text] = before + number
            if not before:
                self._add_message(with_count(text, "some"))
        # Log the first time, and then whenever the count has doubled, so that a steady loss does not fill the log.
        if before.bit_length() != (before + number).bit_length():
            logger.warning("%s", with_count(text, before + number))

    def messages(self) -> list[str]:
        """The latest messages: a lasting condition, the end of one, the first loss of a kind, and what is said once.

        From the second time on, a text has a number, since readers report equal texts only once.
        """
        with self._lock:
            long_ago = time.monotonic() - _LASTING
            for key, since in self._since.items():
                if key not in self._announced and since < long_ago:
                    self._announced[key] = self._lasting[key]
                    self._add_message(self._lasting[key])
            return list(self._messages)

    def _add_message(self, text: str) -> None:
        self._numbers[text] += 1
        if len(self._numbers) > 20 * _MOST_MESSAGES:
            self._numbers.clear()
        times = self._numbers[text]
        self._messages.append(text if times == 1 else f"{text} (occurrence {times})")

    @property
    def lost(self) -> int:
        """The total of the counted losses."""
        return sum(self._counts.values())

    def active(self) -> list[str]:
        """What does not work at present."""
        with self._lock:
            return list(self._lasting.values())

    def take_unreported(self) -> list[str]:
        """Every lasting problem, every loss that has grown since the last call, and messages not reported yet."""
        with self._lock:
            new = [text for text, is_reported in self._once.items() if not is_reported]
            self._once.update(dict.fromkeys(new, True))
            grown = [text for text, number in self._counts.items() if number != self._reported.get(text)]
            self._reported.update(self._counts)
            return [*new, *self._lasting.values(), *(with_count(text, self._counts[text]) for text in grown)]


def with_count(text: str, count: object) -> str:
    """The text with the count in the place of ``{count}``."""
    if count == 1 and (found := _PLURAL.match(text)) is not None:
        noun, verb = found.groups()
        text = f"{{count}} {noun} {_SINGULAR[verb]}{text[found.end() :]}".replace(" and are lost", " and is lost", 1)
    return text.replace("{count}", str(count), 1)


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
