"""Serve a folder over HTTP on port 8000, and log the address and path of each request.

    python counting_store.py FOLDER LOG

Prints `serving` once it listens.
"""

from __future__ import annotations

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Logging(SimpleHTTPRequestHandler):
    """Writes a line for each request."""

    def do_GET(self) -> None:
        with Path(sys.argv[2]).open("a") as log:
            log.write(f"{self.client_address[0]} {self.path}\n")
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Write nothing else."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("", 8000), partial(Logging, directory=sys.argv[1]))
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    server.serve_forever()
