"""A process that has imported Ray and pretends to be its worker. Each body of a program runs in a fork of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = """
import json, os, subprocess, sys, time
# What a worker has imported and done when Ray calls the hook; no cluster is there, and no shipper is to be started.
import ray._private.workers.default_worker
from ray.util.tracing import tracing_helper

class Node:
    session_name, gcs_address, raylet_socket_name = "session_1", "127.0.0.1:1", "/nowhere"
    def get_session_dir_path(self):
        return session

class CoreWorker:
    def get_current_node_id(self):
        return ray.NodeID.from_random()
    def get_worker_id(self, known=ray.WorkerID.from_random()):
        return known
    def get_current_job_id(self):
        return ray.JobID.nil()

class NoProcess:
    def __init__(self, *arguments, **options):
        pass
    def wait(self):
        pass

class GcsClient:
    def internal_kv_multi_get(self, keys, namespace, timeout):
        return {b"tracing_startup_hook": b"ray_tracing_hooks.local:setup"}

worker = ray._private.worker.global_worker
worker.node, worker.core_worker, worker.gcs_client = Node(), CoreWorker(), GcsClient()
subprocess.Popen = NoProcess
tracing_helper._enable_tracing()

for line in sys.stdin:
    session, mode, environ, body = json.loads(line)
    child = os.fork()
    if not child:
        os.environ.clear()
        os.environ.update(environ)
        worker.mode = getattr(ray._private.worker, mode)
        found = {}
        exec(body)
        print(json.dumps(found), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("null", flush=True)
"""


class PretendedWorker:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, session: Path, body: str, mode: str = "WORKER_MODE", **variables: str) -> dict[str, Any]:
        """What a body has put into ``found``. The session is a folder, and the environment has these variables too."""
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps([str(session), mode, {**os.environ, **variables}, body]), file=self.process.stdin, flush=True)
        found: dict[str, Any] | None = json.loads(self.process.stdout.readline())
        assert found is not None, "it ended with an error"
        return found

    def end(self) -> None:
        self.process.communicate()
