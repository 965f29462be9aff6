"""Ray Serve: the spans of a request, from the proxy to the code of the user.

There is one file per wrapped part of Serve. Nothing of Serve is imported before this process takes part in it
(``joining_serve`` in ``_ray/libraries.py``).
"""
