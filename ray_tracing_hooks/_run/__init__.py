"""Support for ``ray-tracing-hooks run``: starts the program as a child process and sets the hook in it.

Ray has no environment variable that names a tracing hook, only the argument ``_tracing_startup_hook`` of
``ray.init()``. So the program's interpreter first finds :mod:`sitecustomize` of the folder ``on_path``, which waits
until the program imports Ray and changes the default of that argument (:mod:`inside`). The program reports the result
in notes.
"""
