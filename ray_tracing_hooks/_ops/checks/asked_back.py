"""Whether the back end finds the test spans that were accepted."""

from __future__ import annotations

from collections.abc import Iterator

from ray_tracing_hooks._insight.analysis.wording import duration
from ray_tracing_hooks._ops.facts import Facts
from ray_tracing_hooks._ops.finding import GOOD, PROBLEM, WARNING, Finding


def check(facts: Facts) -> Iterator[Finding]:
    """What the query API answered, if it was asked."""
    asked = facts.asked
    if asked is None:
        return
    if not asked.is_asked:
        yield Finding(
            "query-not-asked",
            WARNING,
            f"{asked.url} was not asked, since no test span was accepted",
            advice="name an exporter that sends spans to it: local files get no test spans",
        )
    elif asked.error is not None:
        yield Finding(
            "query-fails",
            PROBLEM,
            f"the query API {asked.url} does not answer: {asked.error}",
            advice="give the address of Jaeger's query service (port 16686) or Tempo's (3200) with --query",
        )
    elif asked.missing:
        yield Finding(
            "span-not-found",
            PROBLEM,
            f"test spans were accepted, but {asked.url} does not find them",
            asked.missing,
            "does the collector drop or sample them, or store them elsewhere (another tenant or back end)? See its "
            "pipeline; --timeout waits longer",
        )
    else:
        yield Finding("query", GOOD, f"{asked.url} finds the test spans, after {duration(asked.seconds * 1e9)}")
