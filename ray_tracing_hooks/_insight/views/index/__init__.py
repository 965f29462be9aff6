"""The index of a run on disk, for the server: columns mapped into memory, and the answers to the page's requests."""
