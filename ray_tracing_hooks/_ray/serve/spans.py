"""The common parts of Serve's spans.

Handles Serve's own tracing (Ray 2.56 and later, ``serve/_private/tracing_utils.py``) if it is switched on. Its exporter
is set up as usual, and gets our spans of each request; Serve's own spans would duplicate them. Its sampling decision is
ignored in favour of the cluster's sampler.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.errors import fail
from ray_tracing_hooks._ray.templates import SERVE
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import attach, detach
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.patching import Patches

_MOST_TEMPLATES = 10_000
"""Bounds the cache, since method names come from callers."""

_SHORT = 100
"""Below this many bytes, the lengths of a text and of its enclosing fields take one byte each."""


class TextAttribute:
    """A text attribute with mostly short values, which are encoded in a fraction of the usual time."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._prefixes: list[bytes | None] = [None] * _SHORT
        self._last = "", b""

    def encoded(self, value: str) -> bytes:
        """The encoded attribute; empty for an empty text."""
        last, encoded = self._last
        # Two spans of a request have the same id, and many requests in a row come from one client.
        if value == last:
            return encoded
        size = len(value)
        prefix = self._prefixes[size] if size < _SHORT and value.isascii() else None
        encoded = prefix + value.encode() if prefix is not None else self._encoded(value)
        self._last = value, encoded
        return encoded

    def _encoded(self, value: str) -> bytes:
        if not value:
            return b""
        if not value.isascii() or len(value) >= _SHORT:
            return encode.attribute(self._key, value)
        prefix = self._prefixes[len(value)] = encode.text_attribute_prefix(self._key, len(value))
        return prefix + value.encode()


class Templates:
    """The templates of one kind of span, created on first use."""

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
        if not active.selection.selects(called, SERVE):
            return None
        attributes: dict[str, Any] = {
            names.RAY_SERVE_DEPLOYMENT: deployment,
            **({names.RAY_SERVE_APPLICATION: application} if application else {}),
            names.RAY_SERVE_METHOD: method,
            **({names.RAY_SERVE_REPLICA_ID: replica_id} if replica_id else {}),
            **active.process_attributes.attributes(),
        }
        return Template(f"{called} {self._suffix}", self._kind, attributes)


def of_this_replica() -> tuple[str, str, str]:
    """The deployment, application and id of this process's replica; empty if unknown."""
    from ray.serve import context  # noqa: PLC0415  a replica has it

    here = context._get_internal_replica_context()  # noqa: SLF001  the public one raises without a context
    replica_id = getattr(getattr(here, "replica_id", None), "unique_id", "")
    return getattr(here, "deployment", ""), getattr(here, "app_name", ""), replica_id


of_request_id = TextAttribute(names.RAY_SERVE_REQUEST_ID).encoded
_model_id = TextAttribute(names.RAY_SERVE_MULTIPLEXED_MODEL_ID).encoded


def of_request(metadata: Any) -> bytes:
    """The encoded attributes from Serve's ``RequestMetadata`` of one request."""
    model_id = getattr(metadata, "multiplexed_model_id", "")
    request_id = of_request_id(metadata.request_id)
    return request_id + _model_id(model_id) if model_id else request_id


@functools.lru_cache(maxsize=1000)
def of_status(status: int) -> bytes:
    """The encoded HTTP status of a response."""
    return encode.attribute(names.HTTP_STATUS, status)


async def traced(body: Coroutine[Any, Any, Any], context: Context, span: RecordedSpan | None) -> Any:
    """Run ``body`` in ``context``, and end ``span`` with it."""
    token = attach(context)
    try:
        result = await body
    except BaseException as error:
        hide_frame(error)
        if span is not None:
            fail(span, error)
        raise
    finally:
        detach(token)
    if span is not None:
        span.end()
    return result


_CALLERS = ("ray.serve._private.proxy", "ray.serve._private.replica")
"""The modules that have imported the function by name."""


def patch_own_tracing(patches: Patches) -> bool:
    """Wrap its set-up, if this process has it."""
    from ray.serve._private import tracing_utils  # noqa: PLC0415

    own = vars(tracing_utils).get("setup_tracing")
    if own is None or not hasattr(tracing_utils, "_tracing_enabled"):
        return False
    for name in _CALLERS:
        caller = sys.modules.get(name)
        if caller is not None and vars(caller).get("setup_tracing") is own:
            patches.wrap(caller, "setup_tracing", _setup_tracing(tracing_utils))
    return True


def _setup_tracing(tracing_utils: Any) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    def wrap(original: Callable[..., bool]) -> Callable[..., bool]:
        @functools.wraps(original)
        def setup_tracing(*args: Any, **kwargs: Any) -> bool:
            active = tracing.active
            if active is None:
                return original(*args, **kwargs)
            sampler = active.recorder.sampler
            try:
                return original(*args, **kwargs)
            finally:
                active.recorder.sampler = sampler
                tracing_utils._tracing_enabled = False  # noqa: SLF001

        return setup_tracing

    return wrap
