"""Read a few samples from shards on a web server, which fetches only their bytes, then a whole epoch, shard by shard.

    python examples/remote_ranges.py

The server is started here, on localhost, and counts what it sends. Any web server or bucket that supports range
requests will do.
"""

from __future__ import annotations

import random
import re
import tempfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import wids

if TYPE_CHECKING:
    from collections.abc import Iterator

NUM_SAMPLES = 4000


def main(folder: Path) -> None:
    """Read some samples by ranges, then all of them."""
    remote = folder / "remote"
    remote.mkdir()
    make_shards(remote)
    stored = sum(path.stat().st_size for path in remote.glob("*.tar"))

    with serve(remote) as server:
        url = f"http://localhost:{server.server_port}/pictures.json"
        dataset = wids.ShardListDataset(url, access="range", cache_dir=str(folder / "ranges"), transformations=[])
        print(f"{dataset} at {url}, {stored / 1e6:.1f} MB")

        indices = random.Random(0).sample(range(len(dataset)), 40)
        samples = dataset.__getitems__(indices)  # reads a batch, as a DataLoader does
        few = server.num_bytes
        stats = dataset.stats()
        print(f"40 samples: {few / 1e6:.2f} MB sent, {stats['requests']} requests for ranges, no shard kept on disk")
        for index, sample in zip(indices, samples, strict=True):
            if sample[".bin"].getvalue() != picture(index):
                raise SystemExit(f"sample {index} has other bytes than were stored")

        with dataset.open(7, "bin") as file:
            file.seek(1000)
            print(f"the bytes from 1,000 on of sample 7: {file.read(8).hex(' ')}")

        server.num_bytes = 0
        dataset = wids.ShardListDataset(url, cache_dir=str(folder / "cache"), transformations=[])
        sampler = wids.ChunkedSampler(dataset, chunksize=1000, shards_ahead=2)
        num_read = sum(len(dataset[index][".bin"].getvalue()) for index in sampler)
        first = server.num_bytes
        num_read += sum(len(dataset[index][".bin"].getvalue()) for index in sampler)
        again = server.num_bytes - first
        print(
            f"two epochs: {num_read / 1e6:.1f} MB read, {first / 1e6:.1f} MB sent in the first, {again} in the second"
        )
    if few > stored / 5 or not stored <= first < 1.1 * stored or again:
        raise SystemExit("ranges should send a small part, an epoch each shard once, and the next one nothing")


@contextmanager
def serve(folder: Path) -> Iterator[CountingServer]:
    """Serve the files of a folder on localhost until the block ends."""
    server = CountingServer(folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()


class CountingServer(ThreadingHTTPServer):
    """Serves files or parts of them, and counts the bytes that it sends."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("localhost", 0), Answer)
        self.folder = folder
        self.num_bytes = 0
        self.lock = threading.Lock()


class Answer(BaseHTTPRequestHandler):
    """Answers with a file, or with the requested range of it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send what is requested."""
        path = self.server.folder / Path(self.path).name
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, stop = 0, len(data)
        if wanted:
            start = int(wanted[1])
            stop = min(int(wanted[2] or stop - 1) + 1, stop)
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}-{len(data)}"')
        self.end_headers()
        with self.server.lock:  # counted before it is sent, so that the client finds it counted on receipt
            self.server.num_bytes += stop - start
        self.wfile.write(data[start:stop])

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def make_shards(folder: Path) -> None:
    """Write shards of random samples, about 10 kB each, with their descriptor and index pack."""
    with wids.ShardWriter(str(folder / "pictures-%06d.tar"), max_samples=500) as writer:
        for number in range(NUM_SAMPLES):
            writer.write({"__key__": f"{number:06d}", ".bin": picture(number)})


def picture(number: int) -> bytes:
    """Return the bytes of one sample, random ones in place of a picture."""
    rng = random.Random(number)
    return rng.randbytes(rng.randint(5_000, 15_000))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
