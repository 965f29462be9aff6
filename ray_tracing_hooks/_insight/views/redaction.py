"""Hides parts of spans in output that is passed on: the page, the exports and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import Finding, find
from ray_tracing_hooks._insight.analysis.measured import AnalyzedRun, ExecutionSample, MeasuredFinding, Places, Work
from ray_tracing_hooks._insight.model.columns import CALL_KEYS
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


_NAMING_KEYS = frozenset(
    {
        *("host.name", "host.id", "host.ip", "process.pid", "service.name", "service.instance.id"),
        *(names.RESOURCE_NODE_ID, names.RESOURCE_WORKER_ID, names.RAY_NODE_ID, names.RAY_WORKER_ID, names.RAY_PID),
        *(names.RAY_ACTOR_ID, names.RAY_ACTOR_CLASS, names.RAY_ACTOR_METHOD, names.RAY_ACTOR_NAME),
        *(names.RAY_PLACEMENT_GROUP_ID, names.RAY_ACCELERATOR_IDS, names.RAY_DATA_OPERATOR),
        *(names.RAY_SERVE_APPLICATION, names.RAY_SERVE_DEPLOYMENT, names.RAY_SERVE_METHOD, names.RAY_TUNE_SCHEDULER),
    }
)
"""Attributes of Resources and spans whose values views show in names too: of processes, nodes, actors and operators."""

_OF_ERRORS = (names.ERROR_TYPE, names.EXCEPTION_TYPE, names.EXCEPTION_MESSAGE)


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
        self._marks: dict[str, str] = {}

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

    def hidden_of(self, table: Table) -> list[str]:
        """The keys of attributes that the analysis of a table reads and that are hidden. Without these, an analysis of
        what is shown may come to something else.
        """
        found = {key for each in (*table.sites, *table.resources) for key in each}
        # The names that a program gives its calls are hidden from each analysis.
        read = {key for key in found if key in _NAMING_KEYS or key.startswith("ray.")} | (CALL_KEYS - {names.RAY_NAME})
        return sorted(key for key in read if not self.attributes or self.hides(key))

    def apply(self, table: Table) -> None:
        """Hide values in the names that views give to calls, processes, nodes and actors; it changes the table."""
        if self.hides_names:
            table.forget_names()
        if self.shows_all:
            return
        keys = {key for key in _NAMING_KEYS if self.hides(key) or (not self.attributes and key in _OF_REQUESTS)}
        if keys:
            table.hide(
                lambda found: {key: self._marked(value) if key in keys else value for key, value in found.items()}
            )

    def _marked(self, value: Any) -> Any:
        """A value that is hidden so that different ones stay different: ``***``, ``***2`` and so on."""
        if isinstance(value, list):
            return list(map(self._marked, value))
        number = len(self._marks) + 1
        return value and self._marks.setdefault(str(value), f"{HIDDEN}{number}" if number > 1 else HIDDEN)

    def shown(self, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.shows_all:
            return attributes
        return self._shown(attributes) if self.attributes else {}

    def message(self, text: str) -> str:
        if not self.attributes or not text:
            return ""
        return HIDDEN if self.hides("exception.message") else text

    @property
    def hides_errors(self) -> bool:
        """Whether the types or the messages of exceptions are hidden."""
        return not self.attributes or any(map(self.hides, _OF_ERRORS))

    def evidence(self, finding: Finding) -> str:
        """The text of a finding, without the hidden values that it quotes."""
        text = finding.text
        for key, value in finding.quotes.items():
            if value and (not self.attributes or self.hides(key) or (key == names.ERROR_TYPE and self.hides_errors)):
                text = text.replace(value, HIDDEN)
        return text

    def _shown(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: HIDDEN if self.hides(key) else self._shown(item) for key, item in value.items()}
        return [self._shown(item) for item in value] if isinstance(value, list) else value


class RedactedRun(AnalyzedRun):
    """A run in memory for comparisons, in whose table ``redaction`` has hidden the names."""

    def __init__(self, analysis: Analysis, redaction: Redaction, run: str = "") -> None:
        super().__init__(analysis, run)
        self._redaction = redaction
        self.session = HIDDEN if redaction.hides(names.RESOURCE_SESSION_NAME) else self.session
        self.job = HIDDEN if redaction.hides(names.RAY_JOB_ID) else self.job

    @cached_property
    def resources(self) -> Mapping[int, Mapping[str, Any]]:
        return {number: self._redaction.shown(each) for number, each in super().resources.items()}

    @cached_property
    def findings(self) -> Sequence[MeasuredFinding]:
        texts = map(self._redaction.evidence, find(self.analysis))
        return [each._replace(text=text) for each, text in zip(super().findings, texts, strict=True)]

    def work(self, places: Places, wanted: Callable[[str], bool] = bool) -> dict[tuple[str, str], Work]:
        found = super().work(places, wanted)
        for each in found.values():
            each.sample = self._shown(each.sample)
            each.errors = dict if self._redaction.hides_errors else each.errors
        return found

    def _shown(self, sample: Callable[[int], ExecutionSample]) -> Callable[[int], ExecutionSample]:
        def shown(most: int) -> ExecutionSample:
            own, failed, spans = sample(most)
            kept = self._redaction.shown
            return ExecutionSample(
                own, failed, ((at, kept(resource), kept(attributes)) for at, resource, attributes in spans)
            )

        return shown
