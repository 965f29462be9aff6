"""The errors of this package. A traced program sees none of them unless ``RAY_TRACING_STRICT=1`` is set.

* :class:`TracingError`

  * :class:`SettingError`
"""

from __future__ import annotations


class TracingError(Exception):
    """Tracing itself failed. The message is one sentence for the user."""


class SettingError(TracingError):
    """A setting, or the settings file, cannot be used."""
