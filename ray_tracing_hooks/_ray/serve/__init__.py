"""Ray Serve: the spans of a request, from the proxy to the code of the user.

One file per place of Serve that is wrapped, and nothing of it is imported before this process takes part in Serve:
:mod:`~ray_tracing_hooks._ray.serve.joining` tells when.
"""
