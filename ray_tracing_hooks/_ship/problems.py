"""What a shipper has to tell: in its log at once, and to whoever flushes next."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

_MOST_TEXTS = 5
_MOST_NEWS = 50

_LASTING = 10.0
"""Seconds after which a condition is told to those who do not ask: most hiccups are over by then."""

logger = logging.getLogger("ray_tracing_hooks.ship")


class Problems:
    """Conditions that last until they are cleared, losses that are counted, and what is only said once.

    ``mask`` is applied to all that is told: a server may quote the key that it was sent.
    """

    def __init__(self, mask: Callable[[str], str] = str) -> None:
        self._mask = mask
        self._lock = threading.Lock()
        self._lasting: dict[str, str] = {}
        self._logged: dict[str, set[str]] = {}
        self._said: dict[str, bool] = {}
        self._counts: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._in_news: dict[str, str] = {}
        self._news: deque[str] = deque(maxlen=_MOST_NEWS)
        self._numbers: Counter[str] = Counter()
        self._number = 0

    def set(self, key: str, text: str) -> None:
        """Something does not work at present."""
        text = self._mask(text)
        with self._lock:
            self._lasting[key] = text
            self._since.setdefault(key, time.monotonic())
            # A server that is away may fail in turn in different ways: each is logged once while it is away.
            logged = self._logged.setdefault(key, set())
            if text in logged or len(logged) >= _MOST_TEXTS:
                return
            logged.add(text)
        logger.warning("%s", text)

    def clear(self, key: str) -> None:
        """It works again."""
        with self._lock:
            text = self._lasting.pop(key, None)
            self._logged.pop(key, None)
            self._since.pop(key, None)
            if (told := self._in_news.pop(key, None)) is not None:
                self._add_news(f"no longer a problem: {told}")
        if text is not None:
            logger.info("no longer a problem: %s", text)

    def say(self, text: str) -> None:
        """Something that is wrong from the start, such as a setting; said once however often it is found."""
        text = self._mask(text)
        with self._lock:
            if text in self._said:
                return
            self._said[text] = False
            self._add_news(text)
        logger.warning("%s", text)

    def count(self, text: str, number: int) -> None:
        """So many more of what ``text`` tells, which has the place ``{count}`` for their sum."""
        if number <= 0:
            return
        text = self._mask(text)
        with self._lock:
            before = self._counts.get(text, 0)
            self._counts[text] = before + number
            if not before:
                self._add_news(text.format(count="some"))
        # The first time, and then each time it has doubled: what happens all the time does not fill the log.
        if before.bit_length() != (before + number).bit_length():
            logger.warning("%s", text.format(count=before + number))

    def news(self) -> tuple[int, list[str]]:
        """How much has changed so far, and the latest of it.

        That is a condition that lasts, or is over after that, a first loss, and what is said once. The same condition
        has its number from the second time on, since whoever hears of it says nothing twice.
        """
        with self._lock:
            long_ago = time.monotonic() - _LASTING
            for key, since in self._since.items():
                if key not in self._in_news and since < long_ago:
                    self._in_news[key] = self._lasting[key]
                    self._add_news(self._lasting[key])
            return self._number, list(self._news)

    def _add_news(self, text: str) -> None:
        self._number += 1
        self._numbers[text] += 1
        if len(self._numbers) > 20 * _MOST_NEWS:
            self._numbers.clear()
        times = self._numbers[text]
        self._news.append(text if times == 1 else f"{text} (for the {times}. time)")

    def tell(self) -> list[str]:
        """Every lasting problem, every loss that has grown since it was told, and what has not been told yet."""
        with self._lock:
            new = [text for text, told in self._said.items() if not told]
            self._said.update(dict.fromkeys(new, True))
            grown = [text for text, number in self._counts.items() if number != self._told.get(text)]
            self._told.update(self._counts)
            return [*new, *self._lasting.values(), *(text.format(count=self._counts[text]) for text in grown)]
