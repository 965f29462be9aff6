"""A run on disk, for a server: columns that are mapped into memory, and the answers to what a page asks of them."""
