"""What is set for a running cluster: whether it records, and the settings that differ from those it started with."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ray_tracing_hooks._settings.values import copied

EXPORTERS = "RAY_TRACING_EXPORTERS"
SAMPLER = "OTEL_TRACES_SAMPLER"
_DISABLED = "OTEL_SDK_DISABLED"


class Control(NamedTuple):
    """What is set now. An empty one changes nothing.

    Attributes:
        version: The number of the change, which only one command of a cluster can take; 0 is what it started with.
        enabled: Whether spans are recorded; None as the cluster was started.
        variables: Environment variables that take precedence over those of each process; an empty value unsets one.
        late_hook: Whether the hook of the cluster was set while it was running.
        until: Where nothing is recorded for a time only, when that ends, in seconds since the epoch; otherwise None.
    """

    version: int = 0
    enabled: bool | None = None
    variables: Mapping[str, str] = {}
    late_hook: bool = False
    until: float | None = None

    def __repr__(self) -> str:
        # Without values, which may be secrets.
        return f"Control({self.version}, {self.enabled}, {sorted(self.variables)})"

    @property
    def refused(self) -> list[str]:
        """The variables that a running process cannot change: another version of this package has set them, or somebody
        who has written to the cluster's key-value store.
        """
        from ray_tracing_hooks._settings.otel import LIVE as FAMILIES  # noqa: PLC0415
        from ray_tracing_hooks._settings.table import LIVE, PREFIX  # noqa: PLC0415  rare

        ours = {f"{PREFIX}{name.upper()}" for name in LIVE}
        return sorted(name for name in self.variables if name not in ours and not name.startswith(FAMILIES))

    def over(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of a process with what is set, except for what is :attr:`refused`."""
        refused = self.refused
        found = copied(environ) | {name: value for name, value in self.variables.items() if name not in refused}
        if self.enabled:
            found[_DISABLED] = ""
        elif self.enabled is False:
            # Also where the caller's span is sampled: it may not know yet.
            found[SAMPLER] = "always_off"
        return found

    def encode(self) -> bytes:
        return json.dumps(self._asdict(), sort_keys=True).encode()

    @classmethod
    def decode(cls, text: bytes) -> Control:
        """What :meth:`encode` gave; of nothing, an empty one. Raises ValueError for anything else.

        After the end of :attr:`until` it says that spans are recorded, so nobody has to change it then.
        """
        if not text:
            return cls()
        try:
            found: Any = json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(found, dict):
            raise ValueError("it is not an object")  # noqa: TRY004  the callers' word for what is malformed
        variables, enabled = found.get("variables", {}), found.get("enabled")
        version, until = found.get("version"), found.get("until")
        if (
            not isinstance(version, int)
            or not (enabled is None or isinstance(enabled, bool))
            or not (until is None or isinstance(until, (int, float)))
            or not isinstance(variables, dict)
            or not all(isinstance(each, str) and "\0" not in each for pair in variables.items() for each in pair)
        ):
            raise ValueError("it does not say what is set")
        if until is not None and until <= time.time():
            enabled, until = True, None
        return cls(version, enabled, variables, found.get("late_hook") is True, until)
