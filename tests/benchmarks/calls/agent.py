"""A Datadog agent that takes everything at once.

    python agent.py

Prints its port, serves until its standard input ends, and then prints how much came.
"""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Agent

    def do_PUT(self) -> None:
        size = self._read()
        if self.path.endswith("/traces"):
            with self.server.counting:
                self.server.requests += 1
                self.server.traces += int(self.headers.get("X-Datadog-Trace-Count", 0))
                self.server.bytes += size
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_GET(self) -> None:
        self.do_PUT()

    def do_POST(self) -> None:
        self.do_PUT()

    def _read(self) -> int:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return len(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        total = 0
        while size := int(self.rfile.readline(), 16):
            total += len(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return total

    def log_message(self, *_: object) -> None: ...


class Agent(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.counting = threading.Lock()
        self.requests = self.traces = self.bytes = 0


def main() -> None:
    with Agent() as agent:
        threading.Thread(target=agent.serve_forever, daemon=True).start()
        print(agent.server_port, flush=True)
        sys.stdin.read()
        print(f"{agent.requests:,} requests with {agent.traces:,} traces in {agent.bytes:,} bytes", flush=True)


if __name__ == "__main__":
    main()
