"""Requests and database statements in the trace of the tasks that make them, without a change of the program.

Install the instrumentation of the libraries on each node, name them, and look at the trace:

    pip install requests 'sqlalchemy<2.1'
    pip install opentelemetry-instrumentation-requests opentelemetry-instrumentation-sqlalchemy
    RAY_TRACING_INSTRUMENT=requests,sqlalchemy python examples/libraries.py
    ray-tracing-hooks tree

You see ``GET`` and the statements below their tasks. The server prints the header ``traceparent`` of each request: a
service that is traced too continues the trace.
"""

import json
import tempfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import ray
import requests
import sqlalchemy


@ray.remote
def fetch(url):
    return requests.get(url, timeout=10).json()


@ray.remote
def save(prices, database):
    with sqlalchemy.create_engine(database).begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE prices (item TEXT, price REAL)"))
        connection.execute(sqlalchemy.text("INSERT INTO prices VALUES (:item, :price)"), prices)
        return connection.execute(sqlalchemy.text("SELECT count(*) FROM prices")).scalar()


class Prices(BaseHTTPRequestHandler):
    """Stands for a service: answers each request with two prices."""

    def do_GET(self):
        print("traceparent:", self.headers["traceparent"])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps([{"item": "tea", "price": 3.5}, {"item": "bread", "price": 2.0}]).encode())

    def log_message(self, *_arguments):
        pass


if __name__ == "__main__":
    ray.init(_tracing_startup_hook="ray_tracing_hooks.local:setup")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Prices)
    Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        prices = fetch.remote(f"http://127.0.0.1:{server.server_port}/prices")
        print("saved prices:", ray.get(save.remote(prices, f"sqlite:///{folder}/prices.db")))
