"""SkyWalking's formats: trace ids, headers, and segments.

A span of ours is a segment of its own, with the number 0 in it. Its segment id follows from its trace id and span id,
so that the process which injects a context, the one which reports the span, and those which report its children all
know the same id without telling each other. SkyWalking joins segments by these ids into one tree.
"""
