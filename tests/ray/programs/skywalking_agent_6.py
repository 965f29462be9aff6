"""The same as ``skywalking_agent.py``, traced by ``python2sky``, an agent for SkyWalking 6.x."""

import os
import sys
import threading
import time

sys.path.insert(0, os.environ["RTH_AGENT"])

from python2sky import config
from python2sky.bootstrap import skywalking_boot
from python2sky.context.context_carrier import ContextCarrier
from python2sky.context.context_manager import ContextManager
from python2sky.plugin.requests_plugin import requests_install
from python2sky.proto.language_agent_v2 import trace_pb2_grpc
from python2sky.util import os_util

reported = threading.Semaphore(0)
"""Has one for each segment that the back end has answered to."""


class Stub(trace_pb2_grpc.TraceSegmentReportServiceStub):
    def __init__(self, channel):
        super().__init__(channel)
        collect = self.collect

        def collect_and_count(requests):
            answer = collect(requests)
            reported.release()
            return answer

        self.collect = collect_and_count


trace_pb2_grpc.TraceSegmentReportServiceStub = Stub
os_util.get_all_ipv4 = list  # it would open a socket to a public address
config.BACKEND_SERVICE = os.environ["RTH_BACKEND"]
config.SERVICE_NAME = os.environ["SW_AGENT_NAME"]
config.REGISTER_INTERVAL = 0.05

skywalking_boot()

while not config.SERVICE_ID or not config.SERVICE_INSTANCE_ID:
    time.sleep(0.01)

if sys.argv[1] == "call":
    import requests

    requests_install()
    span = ContextManager.create_entry_span("program", None)
    print(requests.get(sys.argv[2], timeout=120).text, flush=True)
    ContextManager.stop_span(span)
else:
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            carrier = ContextCarrier()
            carrier.deserialize(self.headers["sw6"])
            span = ContextManager.create_entry_span(self.path, carrier)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(self.headers["sw6"].encode())
            ContextManager.stop_span(span)

        def log_message(self, *_arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
reported.acquire(timeout=60)
os._exit(0)  # its threads would never end
