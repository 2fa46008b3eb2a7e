"""Take pictures of the built site on a wide screen and on a phone, light and dark, into site-screens/: `make docs-screens`.

    python docs/screens.py [PAGE.html ...]

Needs Chromium.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
OUT = ROOT / "site-screens"
WIDTHS = (1280, 400)
"""Widths of the screens, in pixels; a picture is as high as its page."""
SCHEMES = {"light": 1, "dark": 0}
"""Colour schemes, with Chromium's numbers for them."""
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--hide-scrollbars"]  # fmt: skip


FRAME = """<body style="margin:0"><iframe src="/{page}" style="border:0;width:{width}px;height:{height}px"
onload="document.title = contentDocument.documentElement.scrollHeight"></iframe>"""
"""A page in a frame: Chromium makes no window narrower than 500 pixels. The title of the whole is the height of the page."""


class Site(SimpleHTTPRequestHandler):
    """Serves the site's files and, as `/frame/WIDTH/HEIGHT/PAGE`, its pages in frames; logs nothing."""

    def do_GET(self) -> None:
        """Answer with a page in a frame, or with a file."""
        if not self.path.startswith("/frame/"):
            super().do_GET()
            return
        width, height, page = self.path.removeprefix("/frame/").split("/", 2)
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(FRAME.format(page=page, width=width, height=height).encode())

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
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Site, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    for page in sys.argv[1:] or sorted(
        str(path.relative_to(SITE)) for path in SITE.rglob("*.html")
    ):
        for width in WIDTHS:
            dom = look(browser, f"{address}/frame/{width}/900/{page}", "--dump-dom")
            height = int(re.search(r"<title>(\d+)</title>", dom)[1])
            for scheme, number in SCHEMES.items():
                picture = (
                    OUT / f"{page.removesuffix('.html').replace('/', '-')}-{width}-{scheme}.png"
                )
                look(
                    browser,
                    f"{address}/frame/{width}/{height}/{page}",
                    f"--screenshot={picture}",
                    f"--window-size={max(width, 500)},{height}",
                    f"--blink-settings=preferredColorScheme={number}",
                )
                print(picture.relative_to(ROOT))


def look(browser: str, url: str, *options: str) -> str:
    """Have Chromium look at a page; return what it prints."""
    command = [browser, *FLAGS, "--virtual-time-budget=3000", *options, url]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
