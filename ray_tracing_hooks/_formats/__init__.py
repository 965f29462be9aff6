"""The formats that spans are stored and sent in, as functions on bytes and text. Nothing here knows Ray or the SDK."""
