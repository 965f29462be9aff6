"""The peak of the memory that a task, method or training loop used: of its process, and of its devices in PyTorch.

The kernel and PyTorch keep the highest value since the process began. Nothing here resets these, since the program may
read them. Where a span has raised one, that is its peak; otherwise the peak is the highest of samples, which a thread
takes while spans are open.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import Any, NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.guard import failed, guarded

INTERVAL = 0.05
"""Seconds between two samples."""

_STATUS = "/proc/self/status"
_CURRENT, _HIGHEST = b"VmRSS:", b"VmHWM:"


class MemoryUse(NamedTuple):
    """How many bytes are in use; None if that is unknown."""

    process: int | None
    device: int | None


class Memory:
    """Measures the spans of this process that are open at the same time."""

    def __init__(self) -> None:
        self._open: set[_Open] = set()
        # Reentrant: a finalizer that ends a span, as of a generator, may interrupt the holder.
        self._lock = threading.RLock()
        # Another thread may hold it when this process forks.
        os.register_at_fork(after_in_child=self._forked)
        self._is_measuring = threading.Event()
        self._thread: threading.Thread | None = None

    @guarded("measuring the memory of a task")
    def measure(self, span: RecordedSpan) -> None:
        """Add the peaks to ``span`` when it ends."""
        opened = _Open(*_look())
        with self._lock:
            self._open.add(opened)
            self._is_measuring.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._sample, name="ray_tracing_hooks-memory", daemon=True)
                self._thread.start()
        span.add_at_end(lambda: self._end(opened))

    def _end(self, opened: _Open) -> bytes:
        with self._lock:
            self._open.discard(opened)
            if not self._open:
                self._is_measuring.clear()
        opened.add(*_look())
        found = b""
        for key, peak in zip((names.RAY_MEMORY_PEAK, names.RAY_MEMORY_DEVICE_PEAK), opened.peaks(), strict=True):
            if peak is not None:
                found += encode.attribute(key, peak)
        return found

    def _sample(self) -> None:
        pause = threading.Event()
        while True:
            self._is_measuring.wait()
            with self._lock:
                measured = set(self._open)
            try:
                current, _ = _look()
            except Exception as error:  # noqa: BLE001  the program continues without samples
                failed("measuring memory", error)
                return
            with self._lock:
                # Not those that began since: the process may have used more before.
                for opened in measured & self._open:
                    opened.sample(current)
            pause.wait(INTERVAL)

    def _forked(self) -> None:
        self._lock = threading.RLock()
        self._open, self._thread, self._is_measuring = set(), None, threading.Event()


@functools.cache
def of_process() -> Memory:
    """Measures this process: one thread for all connections to Ray, one after the other."""
    return Memory()


class _Open:
    """An open span: what was in use when it began, the highest use until then, and the highest sample since."""

    __slots__ = ("_before", "_highest", "_sampled")

    def __init__(self, current: MemoryUse, highest: MemoryUse) -> None:
        self._sampled = current
        self._before = self._highest = highest

    def sample(self, current: MemoryUse) -> None:
        self._sampled = MemoryUse(*map(_most, self._sampled, current))

    def add(self, current: MemoryUse, highest: MemoryUse) -> None:
        self.sample(current)
        self._highest = highest

    def peaks(self) -> MemoryUse:
        """The highest use ever, if it is of this span; otherwise the highest sample."""
        found = zip(self._before, self._highest, self._sampled, strict=True)
        return MemoryUse(*(now if now is not None and now > (before or 0) else sample for before, now, sample in found))


def _most(one: int | None, other: int | None) -> int | None:
    return max(one, other) if one is not None and other is not None else one if other is None else other


def _look() -> tuple[MemoryUse, MemoryUse]:
    """What is in use now, and the highest use since the process began."""
    process, device = _of_process(), _of_devices()
    return MemoryUse(process[0], device[0]), MemoryUse(process[1], device[1])


def _of_process() -> tuple[int | None, int | None]:
    try:
        with open(_STATUS, "rb") as file:
            text = file.read()
    except OSError:
        return None, None
    return _kilobytes(text, _CURRENT), _kilobytes(text, _HIGHEST)


def _kilobytes(text: bytes, name: bytes) -> int | None:
    begin = text.find(name)
    if begin < 0:
        return None
    return int(text[begin + len(name) : text.index(b"kB", begin)]) * 1024


def _of_devices() -> tuple[int | None, int | None]:
    """What PyTorch has allocated on the device where that is the most, if the program uses it with one."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None, None
    devices = range(cuda.device_count())
    if not devices:
        return None, None
    return max(map(cuda.memory_allocated, devices)), max(map(cuda.max_memory_allocated, devices))
