"""Views of a run: trees, the summary document, the page, exports, and the server with its index."""
