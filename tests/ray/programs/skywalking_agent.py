"""A process that the Python agent of SkyWalking traces: ``call URL``, or ``serve`` until its input ends.

The packages of the agent are in the folder ``RTH_AGENT``, its back end is ``RTH_BACKEND``.
"""

import os
import sys
import threading

sys.path.append(os.environ["RTH_AGENT"])

from skywalking import agent, config
from skywalking.client.grpc import GrpcTraceSegmentReportService

reporting = threading.Lock()
report = GrpcTraceSegmentReportService.report


def report_alone(service, segments):
    """At its end the agent waits until its queue is empty, not for the request of the thread that has emptied it. It
    makes a request then itself, which waits here for that of the thread.
    """
    with reporting:
        report(service, segments)


GrpcTraceSegmentReportService.report = report_alone

config.init(
    agent_collector_backend_services=os.environ["RTH_BACKEND"],
    agent_protocol="grpc",
    agent_name=os.environ["SW_AGENT_NAME"],
    agent_instance_name=os.environ["SW_AGENT_INSTANCE_NAME"],
    agent_log_reporter_active=False,
    agent_meter_reporter_active=False,
    agent_profile_active=False,
)
agent.start()

if sys.argv[1] == "call":
    import requests
    from skywalking.trace.context import get_context

    with get_context().new_local_span(op="program"):
        get_context().put_correlation("tenant", "acme")
        print(requests.get(sys.argv[2], timeout=120).text)
else:
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"{self.headers.get('sw8')}".encode())

        def log_message(self, *_arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
