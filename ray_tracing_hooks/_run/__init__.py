"""What ``ray-tracing-hooks run`` needs: a process for the program, and in that process the hook without an edit.

Ray has no variable that names a tracing hook, only the argument ``_tracing_startup_hook`` of ``ray.init()``. So the
program's interpreter finds :mod:`sitecustomize` of the folder ``on_path`` first, which waits until the program imports
Ray and gives that argument another default (:mod:`inside`). What came of it is told in notes (:mod:`notes`).
"""
