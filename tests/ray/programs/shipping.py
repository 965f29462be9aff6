"""Records spans in rounds of 50, on its own and in tasks, and waits after each until it is told to go on.

The arguments are a folder and the number of rounds: round N has been recorded when ``<N>.pid`` is in the folder, and
the program goes on when ``go <N>`` is.
"""

import os
import sys

import harness
import ray
from recording import heard, say, tracer


@ray.remote(num_cpus=0)
def work(number):
    with tracer.start_as_current_span(f"in task {number}"):
        return number


def main():
    folder, rounds = sys.argv[1], int(sys.argv[2])
    for number in range(rounds):
        for _ in range(50):
            with tracer.start_as_current_span(f"round {number}"):
                pass
        ray.get([work.remote(number) for _ in range(50)])
        say(folder, f"{number}.pid", os.getpid())
        heard(folder, f"go {number}")
    return rounds


if __name__ == "__main__":
    harness.run(main)
