"""Changes of a running cluster's settings, for the commands ``enable``, ``disable`` and ``configure``.

``control`` is what is set, ``listener`` how a traced process notices it, and ``publish`` how a command tells the
processes of a node, and learns which of them have applied it.
"""
