"""What the spans of Serve have in common."""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._ray.tracing import SERVE, Tracing
from ray_tracing_hooks._record.recorder import Template

_MOST_TEMPLATES = 10_000
"""More are not remembered: the name of a method comes with the call."""


class Templates:
    """The templates of one place, made when first asked for."""

    def __init__(self, kind: int, suffix: str) -> None:
        self._kind, self._suffix = kind, suffix
        self._active: Tracing | None = None
        self._made: dict[tuple[str, ...], Template | None] = {}

    def of(
        self, active: Tracing, deployment: str, application: str, method: str, replica_id: str = ""
    ) -> Template | None:
        """The template for this method of a deployment, or None where it makes no spans."""
        if active is not self._active or len(self._made) > _MOST_TEMPLATES:
            self._made, self._active = {}, active
        key = deployment, application, method, replica_id
        try:
            return self._made[key]
        except KeyError:
            made = self._made[key] = self._make(active, *key)
            return made

    def _make(
        self, active: Tracing, deployment: str, application: str, method: str, replica_id: str
    ) -> Template | None:
        called = f"{deployment}.{method}"
        if not active.selects(called, SERVE):
            return None
        attributes: dict[str, Any] = {
            names.RAY_SERVE_DEPLOYMENT: deployment,
            **({names.RAY_SERVE_APPLICATION: application} if application else {}),
            names.RAY_SERVE_METHOD: method,
            **({names.RAY_SERVE_REPLICA_ID: replica_id} if replica_id else {}),
            **active.whereabouts(),
        }
        return Template(f"{called} {self._suffix}", self._kind, attributes)


def of_request(metadata: Any) -> dict[str, str]:
    """What Serve's ``RequestMetadata`` says of one request."""
    told = {
        names.RAY_SERVE_REQUEST_ID: getattr(metadata, "request_id", ""),
        names.RAY_SERVE_MULTIPLEXED_MODEL_ID: getattr(metadata, "multiplexed_model_id", ""),
    }
    return {key: value for key, value in told.items() if value}
