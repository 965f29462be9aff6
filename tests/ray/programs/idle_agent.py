"""Takes the place of the agent that the dashboard has on each node, and does nothing for as long as its raylet runs.

A raylet ends where its agent does.
"""

import os
import select

if __name__ == "__main__":
    raylet = os.getppid()
    end = os.pidfd_open(raylet)
    if os.getppid() == raylet:
        select.select([end], [], [])
