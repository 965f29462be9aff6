"""A hook of another package; and, as a program, names another hook in a running cluster."""

import sys

import harness


def setup():
    pass


def main():
    from ray._private.worker import global_worker

    for key, value in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        global_worker.gcs_client.internal_kv_put(key.encode(), value.encode(), True, b"tracing")


if __name__ == "__main__":
    harness.run(main)
