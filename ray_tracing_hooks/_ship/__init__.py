"""The shipper: one detached process per spool folder, which drains the spool into sinks.

``start`` makes sure that one runs, ``flush`` asks it to deliver everything now. In the process itself ``loop`` looks at
the ``folder`` and hands what it sees to one ``delivery`` per sink, which reads by means of ``follow``.
"""
