"""Forked children: they record spans of their own, keep nothing of their parent's, and lose nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from recording import record

pytestmark = pytest.mark.usefixtures("each_way")

FAMILY = """
def work(generation):
    random.seed(0)  # as training scripts do, in each worker
    for _ in range(50):
        with tracer.start_as_current_span("outer"), tracer.start_as_current_span("inner"):
            pass
    if generation < 2:
        for _ in range(2):
            pid = os.fork()
            if pid == 0:
                work(generation + 1)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
work(0)
tell(os.getpid())
"""


def test_each_process_of_a_family_is_told_apart(tmp_path: Path) -> None:
    """Seven processes, all with the same seed: no id twice, and each has its own pid and instance in its Resource."""
    pid, spans = record(FAMILY, tmp_path)
    assert len(spans) == 7 * 100
    assert len({span.trace_id for span in spans}) == 7 * 50
    resources = {span.resource["process.pid"]: span.resource for span in spans}
    assert len(resources) == 7
    assert len({resource["service.instance.id"] for resource in resources.values()}) == 7
    assert all(resource["process.creation.time"] for resource in resources.values())
    own = {"process.pid", "service.instance.id", "process.creation.time"}
    others = [{key: value for key, value in each.items() if key not in own} for each in resources.values()]
    assert others == [others[0]] * 7, "nothing else is different"
    for file in tmp_path.iterdir():
        assert file.name.endswith("-fork.000000.spool") is not file.name.startswith(f"{pid}-")


INHERITED = """
faulthandler.cancel_dump_traceback_later()  # it has a thread, for which a child that ends waits
outer = tracer.start_as_current_span("sdk")
outer.__enter__()
ray = begin("ray")
pid = os.fork()
if pid == 0:
    recorder.disable_after_fork()  # as the connection does
    with tracer.start_as_current_span("of the child"):
        pass
    outer.__exit__(None, None, None)
    ray.end()
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
outer.__exit__(None, None, None)
ray.end()
"""


def test_what_the_parent_has_begun_ends_once_and_there(tmp_path: Path) -> None:
    """A child that leaves the blocks in which it was forked, and the interpreter, does not record them once more."""
    _, spans = record(INHERITED, tmp_path)
    by_name = {span.name: span for span in spans}
    assert len(spans) == len(by_name) == 3
    assert {span.state for span in spans} == {"ended"}
    assert by_name["of the child"].parent_id == by_name["sdk"].span_id
    assert by_name["sdk"].resource["process.pid"] == by_name["ray"].resource["process.pid"]
    assert by_name["sdk"].resource["process.pid"] != by_name["of the child"].resource["process.pid"]


LOCKS = """
from ray_tracing_hooks._spool.reader import is_locked, segments
with tracer.start_as_current_span("first"):
    pass
stop = threading.Event()
recorded = [0, 0]

def roll(index):
    while not stop.is_set():
        begin("rolling").end()
        recorded[index] += 1

threads = [threading.Thread(target=roll, args=(index,)) for index in range(2)]
for thread in threads:
    thread.start()
read, write = os.pipe()
ready, is_ready = os.pipe()
children = []
for _ in range(30):
    pid = os.fork()
    if pid == 0:
        os.close(write)
        paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        inherited = [path for path in paths if os.path.islink(path) and os.readlink(path).startswith(sys.argv[1])]
        begin("of a child").end()
        os.write(is_ready, b".")
        os.read(read, 1)  # until the parent is done
        os._exit(len(inherited))
    children.append(pid)
stop.set()
for thread in threads:
    thread.join()
for _ in children:
    os.read(ready, 1)
writer.close()
locked = [path for process, pairs in segments(sys.argv[1]).items() if process.startswith(f"{os.getpid()}-")
          for _, path in pairs if is_locked(path)]
for descriptor in (read, write, ready, is_ready):
    os.close(descriptor)
inherited = sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)
tell([len(locked), inherited, sum(recorded)])
"""


def test_a_child_that_lives_on_does_not_keep_its_parent_alive(tmp_path: Path) -> None:
    """Forked while threads write and begin one file after the other: no child holds a lock, nothing is lost or torn."""
    (locked, inherited, rolled), spans = recorded = record(LOCKS, tmp_path, segment_bytes=1500)
    assert (locked, inherited) == (0, 0)
    assert recorded.count("rolling") == rolled > 0
    assert recorded.count("of a child") == 30
    assert len(spans) == rolled + 31


BUILDING = """
assert "opentelemetry.sdk.trace" not in sys.modules
thread = threading.Thread(target=lambda: tracer.start_span("of the thread").end())
thread.start()
children = []
while thread.is_alive() or len(children) < 3:
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        trace.get_tracer("other").start_span("of a child").end()
        os._exit(0)
    children.append(pid)
    time.sleep(0.005)
thread.join()
tell([len(children), sum(os.waitpid(pid, 0)[1] for pid in children)])
"""


def test_a_fork_while_another_thread_imports_the_sdk(tmp_path: Path) -> None:
    """No child waits for a thread that it has not."""
    (children, failed), _ = recorded = record(BUILDING, tmp_path)
    assert failed == 0
    assert recorded.count("of a child") == children
    assert recorded.count("of the thread") == 1


PROGRAMS = """
with tracer.start_as_current_span("around"):
    before = dict(os.environ)
    look = "import os; print([os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if fd > '2'"
    look += " and os.path.exists(f'/proc/self/fd/{fd}')], len(os.environ))"
    done = subprocess.run([sys.executable, "-c", look], close_fds=False, capture_output=True, text=True, check=True)
    pid = os.fork()
    if pid == 0:
        begin("before it becomes another program").end()
        os.execv(sys.executable, [sys.executable, "-c", "pass"])
    assert os.waitpid(pid, 0)[1] == 0
tell([sys.argv[1] in done.stdout, str(len(os.environ)) in done.stdout, before == dict(os.environ)])
"""


def test_programs_that_are_started_get_nothing_of_ours(tmp_path: Path) -> None:
    """Neither a descriptor nor a variable; and what a child recorded before it became another program is there."""
    told, spans = record(PROGRAMS, tmp_path)
    assert told == [False, True, True]
    assert {span.name for span in spans if span.state == "ended"} == {"around", "before it becomes another program"}
    assert len(spans) == 2


AFTERWARDS = """
import shutil
children = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        # As when the parent's cluster has ended, and its shipper with it.
        looked = []
        writer._watch = lambda: looked.append(1)
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        for _ in range(3):
            begin("late").end()
        os._exit(len(looked))
    children.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
tell(children)
"""


def test_a_child_looks_for_a_shipper_at_its_first_span(tmp_path: Path) -> None:
    """The parent's shipper may have ended; later spans check for it no more often than before."""
    told, spans = record(AFTERWARDS, tmp_path / "spool")
    assert told == [1, 1]
    assert len(spans) == 3, "the second child has removed those of the first"
