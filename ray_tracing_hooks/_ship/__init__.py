"""The shipper: one detached process per spool folder, which drains the spool into sinks.

From outside: ``start`` starts one unless it is running, ``flush`` asks it to deliver everything now. ``replay`` sends
what is left over in a spool, or in files.

In the process: ``shipper`` is the main loop. It looks at the ``folder`` and passes what it sees to the ``stages``.
Each is a ``stage`` of its own, which reads with ``follow`` and retries: one for each sink and signal,
and ``metrics.stage``. ``retention`` removes delivered segments and enforces the cap, ``flush_requests`` answers
requests, and ``status`` stores the ``figures``. The contract of a sink is in ``sink``, and sinks are registered in
``registry``; the contract of the transports that send their requests is in ``transport.contract``.
"""
