"""The errors of this package. A program that is traced meets none of them unless it asks for ``RAY_TRACING_STRICT=1``.

* :class:`TracingError`

  * :class:`SettingError`
"""

from __future__ import annotations


class TracingError(Exception):
    """Anything that tracing itself could not do. The message is one sentence for the user."""


class SettingError(TracingError):
    """A setting, or the file that holds settings, that cannot be used."""
