"""The figures of delivery: what a shipper has received, delivered and lost, and what still waits.

``tally`` counts in the stages, ``backlog`` counts what waits in a spool, and ``figures`` is both at one moment, as the
shipper stores it in ``status.json`` of its spool folder (``publish``) and exports it as metrics.
"""
