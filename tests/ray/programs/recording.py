"""What the programs that come to an end do until then: record spans, and count on disk those that have ended."""

import contextlib
import contextvars
import os
import threading
import time

from opentelemetry import trace

tracer = trace.get_tracer("endings")
ENDED = 20


@contextlib.contextmanager
def recording(how, folder, pace=0.002):
    """Inside, a thread records ``batch`` spans without end, ``ended`` ones are done and an ``open`` one is not.

    Before that one begins that nobody will ever end, ``forgotten``.

    How many the thread has ended is in the file ``<folder>/<how>.count``, and the process id in ``<how>.pid``.
    """
    stop = threading.Event()
    counter = os.open(os.path.join(folder, f"{how}.count"), os.O_WRONLY | os.O_CREAT, 0o600)
    enough = threading.Event()

    def record():
        count = 0
        while not stop.is_set():
            with tracer.start_as_current_span(f"batch {how}"):
                pass
            count += 1
            os.pwrite(counter, b"%8d" % count, 0)
            if count == ENDED:
                enough.set()
            time.sleep(pace)

    threading.Thread(target=contextvars.copy_context().run, args=(record,), daemon=True).start()
    for _ in range(ENDED):
        with tracer.start_as_current_span(f"ended {how}"):
            pass
    tracer.start_span(f"forgotten {how}")
    with tracer.start_as_current_span(f"open {how}"):
        enough.wait()
        say(folder, f"{how}.pid", os.getpid())
        try:
            yield
        finally:
            if how not in GOES_ON:
                stop.set()


GOES_ON = {"max_calls", "out_of_scope", "exit_actor", "async_exit_actor", "async_sigterm", "reaped"}
"""Here the thread goes on when the task has ended, until its worker does."""


def say(folder, name, value):
    """Write a file that is there at once as a whole."""
    path = os.path.join(folder, name)
    with open(path + ".new", "w") as file:
        file.write(str(value))
    os.rename(path + ".new", path)


def heard(folder, name):
    """The number in a file, as soon as it is there."""
    path = os.path.join(folder, name)
    # A worker takes its time to start where many do at once.
    deadline = time.monotonic() + 120
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise TimeoutError(path)
        time.sleep(0.02)
    with open(path) as file:
        return int(file.read())
