"""Becomes the agent for runtime environments with the first request to it, and does nothing before.

Most clusters of the tests have no request for it, and it takes a second of processor time to start. Its own program
and arguments are the arguments of this one.
"""

import os
import select
import socket
import sys


def become(program, listening):
    """Run the agent in this process: it listens with a socket that has the first request already."""
    import runpy

    bind = socket.socket.bind

    def bind_or_take_over(own, address):
        if tuple(address[:2]) == listening.getsockname()[:2]:
            os.dup2(listening.fileno(), own.fileno())
        else:
            bind(own, address)

    socket.socket.bind = bind_or_take_over
    sys.path[0] = os.path.dirname(program)
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    del sys.argv[0]
    given = dict(part.split("=", 1) for part in sys.argv[1:])
    listening = socket.create_server((given["--node-ip-address"], int(given["--runtime-env-agent-port"])))
    raylet = os.getppid()
    end = os.pidfd_open(raylet)
    if os.getppid() == raylet and listening in select.select([listening, end], [], [])[0]:
        os.close(end)
        become(sys.argv[0], listening)
