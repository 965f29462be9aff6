"""The progress of replays, and where a first replay starts.

Progress is stored in ``.replay-<exporter>.json`` in the replayed folder or, if that is not writable, in
``$XDG_STATE_HOME/ray-tracing-hooks``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from typing import Any

from ray_tracing_hooks._private import write_atomically
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sinks.registry import destination_of
from ray_tracing_hooks._spool.progress import file_name, is_progress_file

FILE_PREFIX = ".replay-"
"""The prefix of the names of progress files in a replayed folder."""


class ReplayProgress:
    """The progress of replays of one folder to one exporter, for each destination."""

    def __init__(self, folder: str, plan: ShipPlan, environ: Mapping[str, str]) -> None:
        (exporter,) = plan.exporters
        self._destination = _destination(plan, environ)
        label = re.sub(r"[^\w.-]", "_", exporter)
        home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        path = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:16]
        self._beside = os.path.join(folder, f"{FILE_PREFIX}{label}.json")
        self._at_home = os.path.join(home, "ray-tracing-hooks", f"replay-{label}-{path}.json")

    def __str__(self) -> str:
        return f"cannot store the progress of the replay in {self._beside!r} or {self._at_home!r}"

    def load(self) -> dict[str, Any]:
        return mapping(self._all().get(self._destination))

    def save(self, progress: Mapping[str, Any]) -> None:
        """Raises OSError."""
        text = json.dumps({**self._all(), self._destination: progress}).encode()
        try:
            write_atomically(self._beside, text)
        except OSError:
            os.makedirs(os.path.dirname(self._at_home), mode=0o700, exist_ok=True)
            write_atomically(self._at_home, text)

    def _all(self) -> dict[str, Any]:
        found = [each for path in (self._beside, self._at_home) if (each := _own_json(path)) is not None]
        return max(found, key=lambda each: each[0])[1] if found else {}


def _own_json(path: str) -> tuple[int, dict[str, Any]] | None:
    """When a file was written, and its JSON object. Only for files of this user, since others may be forged."""
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="utf-8") as file:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
                return found.st_mtime_ns, mapping(json.load(file))
    return None


def mapping(found: Any) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return found if isinstance(found, dict) else {}


def _destination(plan: ShipPlan, environ: Mapping[str, str]) -> str:
    """A digest that identifies a destination, regardless of time-outs and tokens."""
    (exporter,) = plan.exporters
    identity = destination_of(exporter, plan, environ, lambda _problem: None).identity
    return hashlib.sha256(json.dumps(identity).encode("utf-8", "replace")).hexdigest()[:16]


def left_by_shipper(folder: str, plan: ShipPlan, *, anew: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The positions in the spool at which a first replay starts, and the state of the sink there.

    If the shipper that left the spool delivered to the same destination, these are where it stopped. Otherwise it is
    the beginning, but with the open spans whose segments are gone.
    """
    (exporter,) = plan.exporters
    with contextlib.suppress(OSError, ValueError):
        theirs = ShipPlan.load(folder)
        same = exporter in theirs.exporters and _same_place(exporter, plan, theirs)
        if same and not anew:
            return _shipped(folder, file_name(exporter)), _shipped(folder, file_name(exporter), "sink")
    begun: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if is_progress_file(name):
                for process, entry in _shipped(folder, name).items():
                    nothing = {"sequence": 0, "offset": 0, "openings": [], "in_order": False}
                    begun.setdefault(process, {**nothing, "interrupted": [], "maybe_ended": []})
                    begun[process]["openings"] += mapping(entry).get("openings", [])
                    begun[process]["in_order"] |= bool(mapping(entry).get("in_order"))
                    for key in ("interrupted", "maybe_ended"):
                        begun[process][key] += mapping(entry).get(key, [])
    return begun, {}


def _shipped(folder: str, name: str, part: str = "processes") -> dict[str, Any]:
    found = _own_json(os.path.join(folder, name))
    return mapping(found[1].get(part)) if found else {}


def _same_place(exporter: str, ours: ShipPlan, theirs: ShipPlan) -> bool:
    """Whether the other plan delivers there too. Of its environment, which is not stored, only the digest is known."""
    nothing: dict[str, str] = {}
    identities = [destination_of(exporter, plan, nothing, lambda _problem: None).identity for plan in (ours, theirs)]
    return identities[0] == identities[1] and (exporter == "local" or ours.environment == theirs.environment)
