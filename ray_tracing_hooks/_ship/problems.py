"""What a shipper has to tell: in its log at once, and to whoever flushes next."""

from __future__ import annotations

import logging
import threading

logger = logging.getLogger("ray_tracing_hooks.ship")


class Problems:
    """Conditions that last until they are cleared, and losses that are counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lasting: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def set(self, key: str, text: str) -> None:
        """Something does not work at present."""
        with self._lock:
            if self._lasting.get(key) == text:
                return
            self._lasting[key] = text
        logger.warning("%s", text)

    def clear(self, key: str) -> None:
        """It works again."""
        with self._lock:
            text = self._lasting.pop(key, None)
        if text is not None:
            logger.info("no longer a problem: %s", text)

    def count(self, text: str, number: int) -> None:
        """So many more of what ``text`` tells, which has the place ``{count}`` for their sum."""
        if number <= 0:
            return
        with self._lock:
            before = self._counts.get(text, 0)
            self._counts[text] = before + number
        # The first time, and then each time it has doubled: what happens all the time does not fill the log.
        if before.bit_length() != (before + number).bit_length():
            logger.warning("%s", text.format(count=before + number))

    def tell(self) -> list[str]:
        """Every lasting problem, and every loss that has grown since it was told."""
        with self._lock:
            grown = [text for text, number in self._counts.items() if number != self._told.get(text)]
            self._told.update(self._counts)
            return [*self._lasting.values(), *(text.format(count=self._counts[text]) for text in grown)]
