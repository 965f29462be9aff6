"""The spool: what every process appends to and the shipper drains."""
