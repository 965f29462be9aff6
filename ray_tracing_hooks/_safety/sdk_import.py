"""Imports the OpenTelemetry SDK, whatever the environment says."""

from __future__ import annotations

import os

_READ_AT_IMPORT = "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"


def import_sdk() -> None:
    """Import ``opentelemetry.sdk.trace``.

    It reads one variable when it is imported, and raises ValueError if that is invalid: to a program that uses nothing
    but the API, or to a shipper. This package reads the limits itself, and reports invalid ones.
    """
    try:
        import opentelemetry.sdk.trace  # noqa: PLC0415  heavy
    except ValueError:
        # Not in the environment of the process, which threads of Ray in C++ read while Python would change it.
        known, key = vars(os.environ)["_data"], os.environ.encodekey(_READ_AT_IMPORT)
        value = known.pop(key, None)
        if value is None:
            raise
        try:
            import opentelemetry.sdk.trace  # noqa: F401, PLC0415
        finally:
            known[key] = value
