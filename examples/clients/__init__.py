"""A server of this package through the clients that people have: `python -m examples.clients.NAME [URL]`."""
