"""The spool: files that every process appends to and the shipper drains."""
