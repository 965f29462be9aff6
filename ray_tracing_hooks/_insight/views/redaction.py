"""What of spans may be shown where they are passed on: in the page, and in exports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

HIDDEN = "***"
"""What stands for a value that is redacted."""


class Redaction:
    """Hides the values of attributes whose key fits a pattern, as ``*.password``, without regard to case.

    Keys of values that are maps count too. The message of a span's status says what ``exception.message`` does, and is
    hidden with it.

    Attributes:
        attributes: Whether attributes are shown at all, of spans, events, links and Resources, and messages of errors.
    """

    def __init__(self, *, attributes: bool = True, redact: Sequence[str] = ()) -> None:
        self.attributes = attributes
        self._patterns = [pattern.lower() for pattern in redact]
        self._known: dict[str, bool] = {}

    @property
    def shows_all(self) -> bool:
        """Whether there is nothing to hide."""
        return self.attributes and not self._patterns

    def hides(self, key: str) -> bool:
        """Whether the value of this key is not to be shown."""
        if not self._patterns:
            return False
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = any(fnmatchcase(key.lower(), pattern) for pattern in self._patterns)
        return found

    def shown(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """The attributes as they may be shown."""
        if self.shows_all:
            return attributes
        return self._shown(attributes) if self.attributes else {}

    def message(self, text: str) -> str:
        """The message of a status as it may be shown."""
        if not self.attributes or not text:
            return ""
        return HIDDEN if self.hides("exception.message") else text

    def _shown(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: HIDDEN if self.hides(key) else self._shown(item) for key, item in value.items()}
        return [self._shown(item) for item in value] if isinstance(value, list) else value
