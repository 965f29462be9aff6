"""Ray Data's executor stays in one of its steps, in this process. A module of its own, since contexts are pickled."""

import threading

import harness
from ray.data._internal.execution.execution_callback import ExecutionCallback

wanted = threading.Event()
is_held = threading.Event()


class Held(ExecutionCallback):
    def on_execution_step(self, executor):
        if wanted.is_set():
            is_held.set()
            harness.until_killed_in_thread()


def hold():
    """Return when the thread of the executor is held: else it ends as soon as Ray is shut down.

    A thread that has called Ray and ends during ``ray.shutdown()`` may end the process, with code 1.
    """
    wanted.set()
    is_held.wait()
