"""What Ray raises where this package notices connections has no line of this package in its traceback."""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace
from typing import Any

import pytest
import ray._private.worker
import ray.util.client.worker

from ray_tracing_hooks._ray import client, process, tracing
from ray_tracing_hooks._safety.patching import Patches

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="a frame cannot be taken out of a traceback there")


def refuse(*_args: Any, **_kwargs: Any) -> Any:
    raise ConnectionError("on purpose")


def lines_of_ours(call: Any, *args: Any) -> list[str]:
    with pytest.raises(ConnectionError, match="on purpose") as raised:
        call(*args)
    return [frame.filename for frame in traceback.extract_tb(raised.tb) if "ray_tracing_hooks/_ray" in frame.filename]


def test_a_driver_that_cannot_connect_after_an_early_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray._private.worker, "connect", refuse)
    patches = Patches()
    assert process.patch_driver(patches, refuse)
    try:
        assert lines_of_ours(ray._private.worker.connect) == []
    finally:
        patches.undo()


def test_a_client_that_cannot_disconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    worker: Any = object()
    monkeypatch.setattr(ray.util.client.worker.Worker, "close", refuse)
    monkeypatch.setattr(tracing, "active", SimpleNamespace(process=SimpleNamespace(worker=worker)))
    patches = Patches()
    assert client.patch_end(patches, lambda: None, lambda: None)
    try:
        assert lines_of_ours(ray.util.client.worker.Worker.close, worker) == []
    finally:
        patches.undo()
