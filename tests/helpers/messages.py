"""What the page on messages says of each, beside its id: the cause, and what to do.

``reference.py`` writes the page. A message that the code no longer logs, or one that is missing here, is an error.
"""

from __future__ import annotations

ENTRIES = {
    # Hooks and programs
    "hook-not-connected": (
        "the hook was called in a process that",
        "Nothing is traced. Name the hook where Ray starts, and remove the call.",
    ),
    "cluster-without-hook": (
        "this cluster was started without a tracing",
        "Nothing is traced. Restart the cluster with the hook.",
    ),
    "program-joined-untraced": (
        "this program is not traced: it has joined",
        "`ray-tracing-hooks run` traces programs that start their own cluster. Start the cluster with the hook.",
    ),
    "client-without-hook": (
        "this cluster was started without a hook",
        "Restart the cluster with the hook.",
    ),
    "hook-not-used": (
        "this cluster was started with the hook",
        "Ray takes the hook of the cluster. Remove the one in `ray.init()`, or restart the cluster with it.",
    ),
    "second-hook": (
        "this process is already traced, with",
        "The first hook stays. Use `ray_tracing_hooks:setup` with all exporters.",
    ),
    "exporter-twice": (
        "the program's own exporter to … is disabled,",
        "Without this, each span would arrive twice. Remove the exporter from your program.",
    ),
    "tracing-failed": (
        "… failed: …; your program continues without it",
        "An error of this package or of Ray. [Report it](../troubleshooting.md#report-a-problem).",
    ),
    "train-v1": (
        "runs and ranks of the first version of Ray",
        "Use the second version of Ray Train for spans of runs and ranks.",
    ),
    # Versions of Ray
    "ray-changed": (
        "…: Ray … has changed the code that this package wraps",
        "The message names the part that isn't traced. Use a version of Ray that the package supports.",
    ),
    "library-changed": (
        "…: … has changed the code that this package wraps",
        "As [ray-changed](#ray-changed), for a library of Ray or an LLM engine, which the message names.",
    ),
    "ray-changed-waits": (
        "not all of … are recorded: Ray … has changed them",
        "The same as [ray-changed](#ray-changed), for `ray.get`, `ray.wait` or `ray.put`.",
    ),
    "ray-changed-await": (
        "await is not recorded: Ray … has changed",
        "The same as [ray-changed](#ray-changed), for `await`.",
    ),
    "ray-changed-client": (
        "calls are not in the trace of this client:",
        "The same as [ray-changed](#ray-changed), for Ray Client.",
    ),
    "ray-changed-init": (
        "this version of Ray connects in an unknown",
        "The same as [ray-changed](#ray-changed). Programs that call `ray.init()` once are traced.",
    ),
    "ray-changed-arguments": (
        "this version of Ray passes arguments",
        "The same as [ray-changed](#ray-changed). Executions are missing.",
    ),
    # Instrumentation of libraries
    "library-not-instrumented": (
        "…: … is not instrumented: …",
        "The instrumentation failed, or it needs a package or another version of the library. The message says which.",
    ),
    "library-unsupported": (
        "…: … is not instrumented: the instrumentation",
        "Install versions of the library and its instrumentation that fit.",
    ),
    "library-not-undone": (
        "… could not be uninstrumented: …",
        "The library stays instrumented in this process. Restart it to undo this.",
    ),
    # Settings
    "setting-relative": (
        "…=… is relative to the folder in which",
        "Set an absolute path.",
    ),
    "endpoint-scheme": (
        "…=… has no scheme; using …://",
        "Begin the address with `http://` or `https://`.",
    ),
    "endpoint-scheme-tls": (
        "…=… has no scheme, so TLS is used, as",
        "Begin the address with `http://` or `https://`.",
    ),
    "endpoint-without-path": (
        "… has no path, so … are posted to '/',",
        "Add the path, or set `OTEL_EXPORTER_OTLP_ENDPOINT` alone.",
    ),
    "jaeger-port": (
        "…: port … is Jaeger's port for a protocol",
        "Correct the port or the protocol: [Jaeger](../backends/jaeger.md).",
    ),
    "certificates-unused": (
        "the certificates for SkyWalking are",
        "Turn TLS on, or remove the certificates.",
    ),
    # The end of a driver
    "not-delivered-in-time": (
        "not all spans were delivered within",
        "Nothing is lost: the shipper goes on. Raise the timeout if the machine ends with the program.",
    ),
    "not-collected-in-time": (
        "not all spans were collected within",
        "Raise the timeout, or run `ray-tracing-hooks collect`.",
    ),
    "not-collected": (
        "not all spans were collected: …",
        "The message has the error of `ray-tracing-hooks collect`. Run it again while the cluster runs.",
    ),
    # The spool
    "spool-other-folder": (
        "the spool folder cannot be used: …; using …",
        "The message says why. Nothing is lost; spans are in the other folder.",
    ),
    "spool-unusable": (
        "the spool folder cannot be used: …; nothing is recorded",
        "Set `RAY_TRACING_SPOOL_DIR` to a folder of the user who runs Ray.",
    ),
    "spool-recreated": (
        "the spool folder … or files in it were",
        "Something deletes files of Ray's session. Undelivered spans in these files are lost.",
    ),
    "spool-gone": (
        "the spool folder … is gone",
        "Ray has ended, and its session was removed before all spans were delivered.",
    ),
    "spool-unseen": (
        "cannot look at the spool …: …",
        "An error of the disk or of permissions. Spans stay on the disk.",
    ),
    "spool-files-removed": (
        "… files of the spool were removed by",
        "Their spans are lost. Find the process that removes files of Ray's session.",
    ),
    "spool-files-unread": (
        "… files of the spool could not be read and",
        "The disk is damaged, or another version wrote them. `ray-tracing-hooks replay` can send the rest.",
    ),
    "spool-damaged": (
        "… bytes of the spool were damaged and are lost",
        "A process was killed while it wrote, or the disk is damaged. Spans around them are delivered.",
    ),
    "spool-records-skipped": (
        "… records of the spool cannot be decoded and were skipped",
        "Another version of this package wrote them, or they are damaged. Install one version everywhere.",
    ),
    "spans-not-written": (
        "… could not be written to the spool",
        "The disk was full or failed. Make room, or set `RAY_TRACING_SPOOL_DIR` to another disk.",
    ),
    "open-spans-forgotten": (
        "… open spans are no longer tracked, since",
        "Many spans are open at once. Those that end are complete.",
    ),
    # The shipper
    "shipper-gave-up": (
        "gave up after … s: … files of undelivered spans stay in …",
        "Ray has ended and the destination is away. `ray-tracing-hooks replay` with that folder sends them.",
    ),
    "shipper-cannot-read": (
        "gave up: … cannot be read since Ray has ended: …",
        "An error of the disk or of permissions. Spans stay in the folder.",
    ),
    "shipper-replaced": (
        "another shipper has taken over the spool …",
        "Nothing is lost: the other shipper delivers. This one was suspended, or its files were removed.",
    ),
    "shipper-request": (
        "a request is malformed: …",
        "A process of another version asked the shipper. Install one version everywhere.",
    ),
    "progress-unreadable": (
        "the progress in … cannot be read, starting again: …",
        "Some spans may arrive twice.",
    ),
    "progress-malformed": (
        "the progress in … is malformed, starting again: …",
        "Some spans may arrive twice.",
    ),
    "figures-missing": (
        "the counts of delivery cannot be taken: …",
        "Spans are delivered, and `ray-tracing-hooks status` has no counts of this node.",
    ),
    # Metrics
    "metrics-off": (
        "there are no metrics: …; spans are delivered without them",
        "The message has the error, such as a missing package.",
    ),
    "metrics-not-sent": (
        "metrics are not sent to …: …",
        "The message has the error, such as a certificate that can't be read.",
    ),
    "metrics-not-served": (
        "metrics are not served at …: … (…)",
        "Install the extra `[prometheus]` on each node.",
    ),
    "metrics-not-counted": (
        "… spans could not be decoded for metrics",
        "The spans themselves are delivered. Install one version everywhere.",
    ),
    # Replay
    "replay-lines-skipped": (
        "… lines or spans could not be read and were skipped",
        "The files are damaged, or hold something else.",
    ),
    "replay-file-skipped": (
        "… is skipped: it is larger than … MiB",
        "It isn't a file of the spool.",
    ),
    "replay-progress": (
        "cannot store the progress in …: …; the next",
        "The progress can't be written. Spans may arrive twice after an interruption.",
    ),
}
"""By id: the beginning of the message, with an ellipsis for what differs, and Markdown."""
