"""What ``run.json`` says of a run, so that it can be listed without its spans."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.findings import find
from ray_tracing_hooks._insight.analysis.measured import AnalyzedRun, subject_of
from ray_tracing_hooks._insight.ingest.kept_runs import COUNTS
from ray_tracing_hooks._insight.model.grouped import by_first
from ray_tracing_hooks._insight.model.span import HIDDEN
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.views.redaction import Redaction

_COMMIT = "vcs.ref.head.revision"

_VERSIONS = {
    "ray": names.RESOURCE_RAY_VERSION,
    "python": "process.runtime.version",
    "opentelemetry": "telemetry.sdk.version",
    "ray_tracing_hooks": "telemetry.distro.version",
}


def about(analysis: Analysis, recorded: Table, redaction: Redaction | None = None) -> dict[str, Any]:
    """What is known of a run. Raises no error for what was not recorded, which is then null."""
    table, path, quality, run = analysis.table, analysis.path, recorded.quality, AnalyzedRun(analysis)
    findings, redaction = find(analysis), redaction or Redaction()

    def shown(key: str, found: str | None) -> str | None:
        """The value of an attribute."""
        return redaction.shown({key: found}).get(key) if found else None

    def of_resources(key: str) -> str | None:
        return shown(key, _of_resources(table, key))

    def identifier(key: str, found: str) -> str | None:
        """The value of one that is an id, which --no-attributes keeps."""
        return HIDDEN if found and redaction.hides(key) else found or None

    return {
        "program": {
            "name": analysis.name,
            "entrypoint": shown(names.RAY_ENTRYPOINT, _of_sites(table, names.RAY_ENTRYPOINT)),
            "arguments": None,
            "commit": of_resources(_COMMIT),
        },
        "cluster": {
            "session": identifier(names.RESOURCE_SESSION_NAME, analysis.session),
            "job": identifier(names.RAY_JOB_ID, analysis.job),
            "address": of_resources(names.RESOURCE_GCS_ADDRESS),
            "nodes": analysis.parallelism.nodes,
            "workers": analysis.parallelism.workers,
        },
        "versions": {name: of_resources(key) for name, key in _VERSIONS.items()},
        "settings": {},
        "start_unix_nano": path.start,
        "wall_ns": path.wall,
        "state": run.state,
        "counts": {
            "spans": len(table),
            "traces": len(set(table.trace)),
            "calls": len(analysis.calls),
            "functions": len(analysis.functions),
            "failed": int(np.count_nonzero(analysis.is_failed)),
        },
        "findings": [
            {
                "kind": each.kind,
                "subject": subject_of(analysis, each),
                "title": each.title,
                # The title quotes no attribute.
                "text": each.text if redaction.shows_all else "",
                "share": each.share,
                "cost_ns": round(each.share * path.wall),
            }
            for each in findings
        ],
        "read_unix_nano": recorded.now_ns,
        "quality": {
            **{name: getattr(quality, name) for name in COUNTS},
            "problems": [list(each) for each in quality.problems],
            "lost_parents": run.lost_parents,
        },
        "waits": run.waits,
        "is_sampled": run.is_sampled,
        "time_split": run.split,
        "hidden": redaction.hidden_of(table),
    }


def _of_resources(table: Table, key: str) -> str | None:
    return _first(table.resources[index].get(key) for index in by_first(table.resource))


def _of_sites(table: Table, key: str) -> str | None:
    return _first(table.sites[index].get(key) for index in by_first(table.site))


def _first(found: Iterable[Any]) -> str | None:
    return next((str(each) for each in found if each), None)
