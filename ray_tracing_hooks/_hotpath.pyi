# The compiled part of recording and delivery, see ``_hotpath_source``.

from collections.abc import Callable
from typing import Any

class WriterBase:  # what a writer appends with
    _descriptor: int
    _failing: bool
    _is_compiled: bool
    _look_at: float
    _segment_bytes: int
    _written: int

    def span(self, prefix: bytes, span: bytes, /) -> None: ...
    def start(self, prefix: bytes, span: bytes, /) -> None: ...

class RecorderBase:  # what has to be known of a recorder
    sampler: Any
    fallback: Any
    observer: Any
    _writer: WriterBase | None
    _prefix: bytes
    _end_tag: bytes

class SpanBase:  # the attributes of a span
    _recorder: Any
    template: Any
    trace_flags: int
    trace_state: Any
    start_time: int
    end_time: int | None
    _head: bytes
    _context: Any
    _added: Any

    def end(self, end_time: int | None = None) -> None: ...

class BeginningBase:  # begins the tasks of one function or method, whether they carry a context or not
    _tracing: Any
    _inheriting: Execution | None
    _carrying: Execution | None
    _active: Any

    def begin(self, carried: bytes | None, more: Callable[[], bytes] | None = None, /) -> Any: ...

class Execution:  # begins the tasks of one function or method
    def __init__(self, **made_of: Any) -> None: ...
    def begin(self, recorder: RecorderBase, carried: bytes | None, more: Any, /) -> Any: ...

class Submissions:  # what the calls in one context have in common
    def __init__(self, **made_of: Any) -> None: ...

class Method:  # submits calls of methods
    def __init__(self, **made_of: Any) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class CallJson:  # writes the OTLP-JSON of calls
    def __init__(
        self,
        template: Callable[[bytes], str],
        constants: tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes],
        flags: tuple[bytes, ...],
        ids: tuple[bytes, ...],
    ) -> None: ...
    def write(self, span: bytes, /) -> str | None: ...

def good_records(
    data: bytes, position: int, base: int, records: list[tuple[bytes, bytes, bytes, int]], /
) -> int: ...  # appends to the records
def now_ns() -> int: ...  # since the epoch, by the clock of the system
