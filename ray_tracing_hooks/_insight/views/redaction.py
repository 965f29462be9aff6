"""Hides parts of spans in output that is passed on: the page and the exports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.span import HIDDEN
from ray_tracing_hooks._insight.model.table import Table

_SAME = {
    names.RAY_NODE_ID: names.RESOURCE_NODE_ID,
    names.RAY_WORKER_ID: names.RESOURCE_WORKER_ID,
    names.RAY_PID: "process.pid",
}
"""Attributes of spans that a Resource has by other names."""
_SAME |= {resource: span for span, resource in _SAME.items()}


_OF_REQUESTS = frozenset({names.RAY_SERVE_APPLICATION, names.RAY_SERVE_DEPLOYMENT, names.RAY_SERVE_METHOD})
"""Attributes that name what requests to Ray Serve are for. The names of their spans do not show all of them."""


class Redaction:
    """Hides the values of attributes whose key matches a pattern such as ``*.password``, ignoring case.

    Keys inside map values count too, and what is an attribute of Resources and of spans is hidden in both. The message
    of a span's status repeats ``exception.message`` and is hidden with it.

    Attributes:
        attributes: Whether attributes of spans, events, links and Resources, and error messages, are shown at all.
    """

    def __init__(self, *, attributes: bool = True, redact: Sequence[str] = ()) -> None:
        self.attributes = attributes
        self._patterns = [pattern.lower() for pattern in redact]
        self._known: dict[str, bool] = {}

    @property
    def shows_all(self) -> bool:
        return self.attributes and not self._patterns

    @property
    def hides_names(self) -> bool:
        """Whether the names that a program gives its calls are hidden."""
        return not self.attributes or self.hides(names.RAY_NAME)

    def hides(self, key: str) -> bool:
        if not self._patterns:
            return False
        found = self._known.get(key)
        if found is None:
            spellings = key, _SAME.get(key, key)
            found = any(fnmatchcase(each.lower(), pattern) for each in spellings for pattern in self._patterns)
            self._known[key] = found
        return found

    def apply(self, table: Table) -> None:
        """Hide values in the names that views give to calls, processes, nodes and actors; it changes the table."""
        if self.hides_names:
            table.forget_names()
        if not self.shows_all:
            table.hide(lambda key: self.hides(key) or (not self.attributes and key in _OF_REQUESTS), HIDDEN)

    def shown(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.shows_all:
            return attributes
        return self._shown(attributes) if self.attributes else {}

    def message(self, text: str) -> str:
        if not self.attributes or not text:
            return ""
        return HIDDEN if self.hides("exception.message") else text

    def _shown(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: HIDDEN if self.hides(key) else self._shown(item) for key, item in value.items()}
        return [self._shown(item) for item in value] if isinstance(value, list) else value
