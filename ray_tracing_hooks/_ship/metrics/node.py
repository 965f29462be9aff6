"""How much of this node is in use: its processors and memory from ``/proc``, and its GPUs from NVML, the library of the
driver, if ``nvidia-ml-py`` is installed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from ray_tracing_hooks import names

_NVML = "pynvml"
"""The module of ``nvidia-ml-py``."""

_VENDOR = "NVIDIA"

_LEAST_INTERVAL = 0.1
"""Seconds between two samples, at least."""

_STAT, _MEMORY = "/proc/stat", "/proc/meminfo"
_IDLE, _WAITING = 3, 4
"""The columns of ``/proc/stat`` with the time in which a processor did nothing."""


class Sample(NamedTuple):
    """One value of a gauge."""

    metric: str
    value: float
    attributes: tuple[tuple[str, str], ...] = ()


class NodeSampler:
    """Samples the node when it is asked to, but for all who ask within half an interval once.

    Attributes:
        interval: Seconds between two samples.
    """

    def __init__(self, interval: float) -> None:
        self.interval = max(_LEAST_INTERVAL, interval)
        self._lock = threading.Lock()
        self._sources = (Processors(), Gpus())
        self._until = 0.0
        self._last: Sequence[Sample] = ()

    def samples(self) -> Sequence[Sample]:
        """The values of this moment, or of less than half an interval ago. May be called in any thread."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._until = time.monotonic() + self.interval / 2
                self._last = [sample for source in self._sources for sample in source.samples()]
            return self._last

    def close(self) -> None:
        """Let go of the driver of the GPUs."""
        with self._lock:
            self._sources[1].close()


class Processors:
    """The processors of the node since the last sample, and its memory."""

    def __init__(self) -> None:
        self._before = _times()

    def samples(self) -> Iterator[Sample]:
        """Nothing where the kernel does not say."""
        now, before = _times(), self._before
        self._before = now
        if now is not None and before is not None and now[1] > before[1]:
            yield Sample(names.CPU_UTILIZATION, (now[0] - before[0]) / (now[1] - before[1]))
        used = _memory_used()
        if used is not None:
            yield Sample(names.MEMORY_UTILIZATION, used)


def _times() -> tuple[int, int] | None:
    """The busy time and all time of the processors so far, in the kernel's unit."""
    try:
        with open(_STAT, encoding="ascii") as file:
            # Those of guests are also part of others.
            columns = [int(column) for column in file.readline().split()[1:9]]
        return sum(columns) - columns[_IDLE] - columns[_WAITING], sum(columns)
    except (OSError, ValueError, IndexError):
        return None


def _memory_used() -> float | None:
    """The share of memory that is not available to programs."""
    try:
        with open(_MEMORY, encoding="ascii") as file:
            found = {line.partition(":")[0]: int(line.split()[1]) for line in file if " kB" in line}
        return 1 - found["MemAvailable"] / found["MemTotal"]
    except (OSError, ValueError, IndexError, KeyError, ZeroDivisionError):
        return None


class Gpus:
    """The GPUs of the node; none without the library or its driver."""

    def __init__(self) -> None:
        self._devices: list[tuple[Any, tuple[tuple[str, str], ...]]] = []
        self._nvml: Any = None
        try:
            nvml = import_module(_NVML)
            nvml.nvmlInit()
        except Exception:  # noqa: BLE001  most nodes have neither
            return
        self._nvml = nvml
        count = 0
        with contextlib.suppress(Exception):
            count = nvml.nvmlDeviceGetCount()
        for index in range(count):
            # The driver has no handle of one that has failed: the others are sampled.
            with contextlib.suppress(Exception):
                device = nvml.nvmlDeviceGetHandleByIndex(index)
                identity = (
                    (names.HW_ID, _text(nvml.nvmlDeviceGetUUID(device))),
                    (names.HW_NAME, _text(nvml.nvmlDeviceGetName(device))),
                    (names.HW_VENDOR, _VENDOR),
                    (names.RAY_ACCELERATOR_ID, f"GPU:{index}"),
                )
                self._devices.append((device, identity))

    def samples(self) -> Iterator[Sample]:
        """What the driver says; a value that it cannot say, as for a part of a device, is left out."""
        for device, identity in self._devices:
            with contextlib.suppress(Exception):
                used = self._nvml.nvmlDeviceGetUtilizationRates(device).gpu
                yield Sample(names.GPU_UTILIZATION, used / 100, identity)
            with contextlib.suppress(Exception):
                memory = self._nvml.nvmlDeviceGetMemoryInfo(device)
                yield Sample(names.GPU_MEMORY_USAGE, memory.used, identity)
                yield Sample(names.GPU_MEMORY_LIMIT, memory.total, identity)

    def close(self) -> None:
        """Let go of the driver."""
        if self._nvml is not None:
            with contextlib.suppress(Exception):
                self._nvml.nvmlShutdown()


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
