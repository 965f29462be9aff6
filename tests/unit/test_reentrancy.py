"""Spans from everywhere at once: threads, signal handlers, finalizers, trace functions, logging, the interpreter's end.

Each program records in some place that Python runs in the middle of the recorder's own code, with segments so small
that it begins new ones all the time.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from recording import record, run

from ray_tracing_hooks._spool.layout import DROPPED, RESOURCE, SCOPE, SPAN, START, U64
from ray_tracing_hooks._spool.reader import SegmentReader, iterate

pytestmark = pytest.mark.usefixtures("each_way")

SIGNALS = """
tracer.start_span("first").end()
main = handled = 0

def handle(number, frame):
    global handled
    begin("in a handler").end()
    with tracer.start_as_current_span("in a handler"):
        pass
    handled += 2

signal.signal(signal.SIGPROF, handle)
# By the processor's time, or on a busy machine there would be nothing but handlers.
signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
while handled < 200:
    begin("in the program").end()
    with tracer.start_as_current_span("in the program"):
        recorder_of_new_scope = trace.get_tracer(f"scope {main % 60}")
        recorder_of_new_scope.start_span("in the program").end()
    main += 3
signal.setitimer(signal.ITIMER_PROF, 0)
tell([main, handled, said])
"""


def test_spans_of_a_signal_handler_that_comes_in_the_middle_of_recording(tmp_path: Path) -> None:
    """None is lost, on either side, and nothing is said; each has the scope that it was made with."""
    (main, handled, said), spans = recorded = record(SIGNALS, tmp_path, segment_bytes=5000)
    assert said == []
    assert recorded.count("in the program") == main
    assert recorded.count("in a handler") == handled
    assert {span.scope for span in spans if span.name == "in a handler"} == {"recorder", "program"}
    others = [span for span in spans if span.scope.startswith("scope ")]
    assert {span.name for span in others} == {"in the program"}
    assert len(others) == main // 3


TIMEOUTS = """
import functools

class Slow(Exception):
    pass

class TooSlow(TimeoutError):
    pass

raised = [Slow, TooSlow]

class Handler:
    def __call__(self, number, frame):
        raise raised[0]

class Inherited(Handler):
    pass

def named(text, number, frame):
    raise raised[0](text)

def restoring(number, frame):
    signal.signal(number, signal.SIG_DFL)
    raise raised[0]

@functools.lru_cache(maxsize=0)
def wrapped(*arguments):
    raise raised[0]

def deleting(number, frame):
    del number, frame
    raise raised[0]

handlers = (
    Handler(), Handler().__call__, lambda number, frame: Handler()(number, frame), Inherited(),
    functools.partial(named, "late"), restoring, wrapped, deleting,
)

# A function of its own: Python 3.13.0 does not catch what is raised at the end of a loop in the same frame.
def work(until):
    while time.monotonic() < until:
        span = begin("work")
        span.set_attribute("key", ["value"] * 20)
        span.end()
        tracer.start_span("work", attributes={"a": "b"}).end()

tracer.start_span("first").end()
for handler in handlers:
    for attempt in range(24):
        raised.reverse()
        signal.signal(signal.SIGALRM, handler)
        begun = time.monotonic()
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.003))
            work(begun + 10)
            raise AssertionError(f"the time-out of attempt {attempt} has never come: {said}")
        except raised[0]:
            pass
tell(said)
"""


def test_what_a_signal_handler_raises_reaches_the_program(tmp_path: Path) -> None:
    """A timeout raised while a span is being recorded belongs to the program, so it is not suppressed."""
    told, _ = record(TIMEOUTS, tmp_path, segment_bytes=5000)
    assert told == []


INTERRUPTED = '''
class Slow(TimeoutError):
    pass

def interrupted(call, at):
    """Call a function, and raise at this line of all that it runs; whether there is such a line."""
    seen = 0

    def look(frame, event, argument):
        nonlocal seen
        seen += event == "line"
        if seen == at:
            raise Slow
        return look

    sys.settrace(look)
    try:
        call()
    except Slow:
        return True
    finally:
        sys.settrace(None)
    assert seen < at, f"what was raised at line {at} has not reached the program"
    return False

tracer.start_span("first").end()
ends = []
for start in (begin, tracer.start_span):
    at, came = 0, True
    while came:
        span = start("ended")
        span.set_attribute("key", "value")
        at += 1
        came = interrupted(span.end, at)
        if span.is_recording():
            span.end()
    ends.append(at)

def block():
    with tracer.start_as_current_span("block"):
        pass

block()
blocks = 1
while interrupted(block, blocks):
    blocks += 1

def error():
    try:
        try:
            raise KeyError("first")
        except KeyError as first:
            raise ValueError("second") from first
    except ValueError as second:
        return second

def fail(span, failed):
    span.fail(failed, failed.__traceback__)

fails, came, failed = 0, True, error()
fail(begin("failed"), failed)  # it reads the lines of the program
while came:
    span = begin("failed")
    fails += 1
    came = interrupted(lambda: fail(span, failed), fails)
    span.end()
tell([ends, blocks, fails, said])
'''


def test_what_is_raised_at_any_line_reaches_the_program(tmp_path: Path) -> None:
    """By a signal handler, for example, also while a new segment begins, and the span is recorded once.

    Also from the start of the span of a block until the context is restored and the span has ended, and while an error
    is recorded: the standard library would suppress it where it formats a traceback.
    """
    (ends, blocks, fails, said), spans = recorded = record(INTERRUPTED, tmp_path, segment_bytes=2000)
    assert said == []
    assert recorded.count("ended") == sum(ends)
    assert min(ends) > 20
    assert all(span.end_ns for span in spans if span.name == "ended")
    assert min(blocks, fails) > 50


FINALIZERS = """
import weakref
tracer.start_span("first").end()
ended = 0

class Owner:
    def __init__(self, span):
        self.span, self.me = span, self

    def __del__(self):
        global ended
        self.span.end()
        trace.get_tracer(f"scope {ended % 10}").start_span("in a finalizer").end()
        ended += 1

def gone(_reference):
    begin("in a callback").end()

references = []
gc.set_threshold(5, 2, 2)
for _ in range(400):
    owner = Owner(begin("owned") if random.random() < 0.5 else tracer.start_span("owned"))
    references.append(weakref.ref(owner, gone))
    del owner
    begin("in the program").end()
gc.collect()
tell([ended, said])
"""


def test_spans_that_end_while_garbage_is_collected(tmp_path: Path) -> None:
    """Also where it is the recorder that makes the collector run."""
    (ended, said), _ = recorded = record(FINALIZERS, tmp_path, segment_bytes=5000)
    assert (ended, said) == (400, [])
    for name in ("owned", "in a finalizer", "in the program"):
        assert recorded.count(name) == 400, name


LOGGING = """
import logging

class Handler(logging.Handler):
    def emit(self, record):
        if record.msg == "of the program":
            holding.set()
            saying.wait(10)
            begin("in emit").end()

holding, saying = threading.Event(), threading.Event()
logger = logging.getLogger("program")
logger.addHandler(Handler())
logger.setLevel(logging.INFO)

def say(message):
    holding.wait(10)
    saying.set()
    logger.info(message)

writer._on_problem = say
writer.directory, folder = "/proc/no such folder", writer.directory
other = threading.Thread(target=lambda: begin("not to be written").end())
other.start()
logger.info("of the program")
other.join()
writer.directory = folder
while writer._refused_until > time.monotonic():
    time.sleep(0.05)
begin("written").end()
"""


def test_a_logging_handler_that_records_spans_and_shows_our_problems(tmp_path: Path) -> None:
    """The thread that has something to say does not keep those that log from recording, or they wait for each other."""
    run(LOGGING, tmp_path)
    (file,) = tmp_path.iterdir()
    records = SegmentReader(str(file)).read()
    assert [kind for kind, _, _ in records] == [RESOURCE, SCOPE, START, DROPPED, SPAN]
    assert records[3][1] == U64.pack(2)


CROWD = """
THREADS, SPANS = 32, 2_000
template = Template("of the crowd", 4, {"constant": "value"})
numbers = encode.text_attribute_prefix("number", 8)
start = threading.Barrier(THREADS)

def work(thread):
    start.wait()
    trace_id = thread.to_bytes(16, "big")
    for index in range(1, SPANS + 1):
        number = thread * SPANS + index
        recorder.record(template, identity_of(trace_id, number.to_bytes(8, "big"), None), number, number + 1,
                        numbers + b"%08d" % number)

threads = [threading.Thread(target=work, args=(thread,)) for thread in range(1, THREADS + 1)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
tell(said)
"""


def test_a_crowd_of_threads(tmp_path: Path) -> None:
    """32 threads with 2,000 spans each: every one is there once, and none holds a part of another."""
    assert run(CROWD, tmp_path, segment_bytes=1 << 16) == []
    ((_, paths, _),) = iterate(str(tmp_path))
    found = bytearray(33 * 2_000 + 1)
    for path in paths:
        reader = SegmentReader(path)
        for kind, payload, _ in reader.read(final=True):
            if kind == SPAN:
                number = int.from_bytes(payload[22:30], "big")
                assert payload.endswith(b"%08d" % number)
                assert int.from_bytes(payload[4:20], "big") == (number - 1) // 2_000
                found[number] += 1
        assert reader.damaged == 0
    assert len(paths) > 30
    assert found == bytes(2_001) + b"\x01" * (32 * 2_000)


THE_END = """
import atexit
counted = [0, 0]

def work(index):
    while True:
        begin("of a daemon").end()
        counted[index] += 1

class Owner:
    def __del__(self):
        self.span.end()

atexit.register(lambda: tracer.start_span("at exit").end())
owner = Owner()
owner.span = begin("owned by a global")
for index in range(2):
    threading.Thread(target=work, args=(index,), daemon=True).start()
while min(counted) < 100:
    time.sleep(0.01)
tell(sum(counted))
"""


def test_the_end_of_the_interpreter(tmp_path: Path) -> None:
    """Threads that go on until they are stopped, spans that end at the very end: no word of it, and nothing torn."""
    counted, _ = recorded = record(THE_END, tmp_path, segment_bytes=5000)
    assert recorded.count("of a daemon") >= counted
    assert recorded.count("at exit") == recorded.count("owned by a global") == 1
