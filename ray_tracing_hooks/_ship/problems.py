"""The problems of a shipper, which are logged at once, and reported to the next flush."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

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
