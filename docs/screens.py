"""Take pictures of the built site on a wide screen and on a phone, light and dark, into site-screens/: `make docs-screens`.

    python docs/screens.py [PAGE.html ...]

Needs Chromium.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
OUT = ROOT / "site-screens"
WIDTHS = {1280: 2400, 400: 3000}
"""Width of the screen, and height of the picture, in pixels."""
SCHEMES = {"light": 1, "dark": 0}
"""Colour schemes, with Chromium's numbers for them."""
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--hide-scrollbars"]  # fmt: skip


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without logging requests."""

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    """Take all pictures."""
    browser = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if browser is None:
        sys.exit("no Chromium is installed: apt-get install chromium")
    OUT.mkdir(exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for page in sys.argv[1:] or sorted(
        str(path.relative_to(SITE)) for path in SITE.rglob("*.html")
    ):
        for width, height in WIDTHS.items():
            for scheme, number in SCHEMES.items():
                take(browser, f"{address}/{page}", width, height, scheme, number)


def take(browser: str, url: str, width: int, height: int, scheme: str, number: int) -> None:
    """Take one picture, of the page in a frame: Chromium makes no window narrower than 500 pixels."""
    with tempfile.NamedTemporaryFile("w", suffix=".html") as frame:
        frame.write(
            f'<body style="margin:0"><iframe src="{url}" style="border:0;width:{width}px;height:{height}px">'
        )
        frame.flush()
        name = "-".join(url.removesuffix(".html").split("/")[3:])
        picture = OUT / f"{name}-{width}-{scheme}.png"
        options = [
            f"--blink-settings=preferredColorScheme={number}",
            "--virtual-time-budget=3000",
        ]
        size = f"--window-size={max(width, 500)},{height}"
        subprocess.run(
            [
                browser,
                *FLAGS,
                *options,
                size,
                f"--screenshot={picture}",
                Path(frame.name).as_uri(),
            ],
            check=True,
            capture_output=True,
        )
    print(picture.relative_to(ROOT))


if __name__ == "__main__":
    main()
