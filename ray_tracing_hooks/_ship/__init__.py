"""The shipper: one detached process per spool folder, which drains the spool into sinks.

Outside of it: ``start`` makes sure that one runs, ``flush`` asks it by the ``control`` channel to deliver everything
now, and ``news`` reads what it has to say. ``replay`` sends once more what is left over.

In the process: ``shipper`` is the main loop. It looks at the ``folder`` and offers what it sees to the ``deliveries``,
each a ``stage`` of its own that reads by means of ``follow`` and retries by means of ``retry``: a ``delivery`` for each
sink, and one that counts for ``metrics``. ``retention`` removes what was delivered and keeps the cap,
``flush_requests`` answers, ``claim`` holds the folder, and ``tail_sampling`` decides on traces that are not sampled. A
sink fulfils the contract in ``sink`` and is registered in ``sinks.registry``; what sends requests for it, that in
``transport.contract``.
"""
