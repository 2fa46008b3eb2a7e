"""Read clips from anywhere in videos, with their sound and captions, from `.mp4` members that are not copied.

    python examples/video_clips.py

`dataset.open(i, "mp4")` is a seekable file over a member of the shard. PyAV seeks in it to the keyframe before a clip and
decodes from there. So reading a clip of a long video reads the clip and the table of contents, not the whole video.
"""

from __future__ import annotations

import io
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import av
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import wids

if TYPE_CHECKING:
    from collections.abc import Iterator

NUM_VIDEOS = 6
NUM_FRAMES = 120
FRAMES_PER_S = 24
SOUND_RATE = 16_000
WIDTH, HEIGHT, NUM_BITS = 128, 64, 8
CLIP_FRAMES = 16
STRIDE = 2
"""Every second frame is taken."""


def main(folder: Path) -> None:
    """Write videos, and read clips from them in batches."""
    make_videos(folder)
    videos = wids.ShardListDataset(folder / "videos.json", transformations=[])
    clips = Clips(videos)
    print(f"{videos}: {len(clips)} clips of {CLIP_FRAMES} frames")

    sampler = wids.ChunkedSampler(clips, chunksize=8)
    loader = DataLoader(clips, batch_size=4, sampler=sampler, num_workers=2)
    num_right = 0
    for batch in loader:
        expected = batch["start"][:, None] + STRIDE * torch.arange(CLIP_FRAMES)
        num_right += int((drawn_numbers(batch["frames"]) == expected).all(dim=1).sum())
    print(f"the last batch: frames {tuple(batch['frames'].shape)}, sound {tuple(batch['sound'].shape)}")
    print(f"its captions: {batch['caption']}")
    print(f"{num_right} of {len(clips)} clips have just the frames that were asked for")

    size = videos.locate(0)[".mp4"].size
    with Counting(videos.open(0, "mp4")) as file:
        read_frames(file, NUM_FRAMES - CLIP_FRAMES, CLIP_FRAMES)
        print(f"the last {CLIP_FRAMES} frames of a video of {size:,} bytes: {file.num_bytes:,} of them were read")
    if num_right != len(clips) or file.num_bytes >= size:
        raise SystemExit("clips have other frames than those asked for, or whole videos were read")


class Clips(Dataset):
    """Clips by number, of `CLIP_FRAMES` frames each, one after another through all videos.

    Args:
        videos: Samples with `.mp4` and `.json`, whose `num_frames` is the length of the video.
    """

    def __init__(self, videos: wids.ShardListDataset) -> None:
        self.videos = videos
        self.facts = list(videos.select_fields("json").decode())
        span = CLIP_FRAMES * STRIDE
        self.places = [
            (video, start)
            for video, facts in enumerate(self.facts)
            for start in range(0, facts["json"]["num_frames"] - span + 1, span)
        ]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: int) -> dict[str, object]:
        """Return `frames` `(time, 3, height, width)` uint8, `sound` `(samples,)` float32, `caption` and `start`."""
        video, start = self.places[number]
        span = CLIP_FRAMES * STRIDE
        with self.videos.open(video, "mp4") as file:
            frames = read_frames(file, start, span)[::STRIDE]
            file.seek(0)
            sound = read_sound(file, start / FRAMES_PER_S, span / FRAMES_PER_S)
        captions = self.facts[video]["json"]["captions"]  # (first second, text), in order
        caption = next(text for second, text in reversed(captions) if second <= start / FRAMES_PER_S)
        return {"frames": torch.stack(frames), "sound": sound, "caption": caption, "start": start}


def read_frames(file: io.BufferedIOBase, start: int, count: int) -> list[torch.Tensor]:
    """Return frames `start` to `start + count` of a video, each `(3, height, width)` uint8."""
    with av.open(file) as container:
        stream = container.streams.video[0]
        found: list[torch.Tensor] = []
        for frame in decode_from(container, stream, Fraction(start, FRAMES_PER_S)):
            if round(frame.pts * stream.time_base * FRAMES_PER_S) >= start:
                found.append(torch.from_numpy(frame.to_ndarray(format="rgb24")).permute(2, 0, 1))
            if len(found) == count:
                break
        return found


def read_sound(file: io.BufferedIOBase, start_s: float, length_s: float) -> torch.Tensor:
    """Return the sound of a stretch of time, `(samples,)` float32, at `SOUND_RATE`."""
    with av.open(file) as container:
        stream = container.streams.audio[0]
        pieces: list[np.ndarray] = []
        first = None
        for frame in decode_from(container, stream, Fraction(start_s)):
            first = frame.time if first is None else first
            pieces.append(frame.to_ndarray()[0])
            if frame.time + frame.samples / SOUND_RATE >= start_s + length_s:
                break
        offset = round((start_s - first) * SOUND_RATE)
        return torch.from_numpy(np.concatenate(pieces)[offset : offset + round(length_s * SOUND_RATE)])


def decode_from(
    container: av.container.InputContainer, stream: av.stream.Stream, start_s: Fraction
) -> Iterator[av.frame.Frame]:
    """Yield the frames of a stream, beginning with the keyframe before a time."""
    container.seek(int(start_s / stream.time_base), stream=stream)
    yield from container.decode(stream)


class Counting(io.BufferedReader):
    """A file that counts the bytes read from it."""

    num_bytes = 0

    def __init__(self, file: io.BufferedReader) -> None:
        super().__init__(file.detach())

    def read(self, size: int | None = -1) -> bytes:
        """Read, and count what was read."""
        data = super().read(size)
        self.num_bytes += len(data)
        return data


def drawn_numbers(frames: torch.Tensor) -> torch.Tensor:
    """Return the numbers of frames, `(batch, time)`, which `make_video` drew into them as black and white stripes."""
    top = frames[:, :, 0, : HEIGHT // 2].float()
    bits = top.unflatten(-1, (NUM_BITS, -1)).mean(dim=(2, 4)) > 127
    return (bits * 2 ** torch.arange(NUM_BITS)).sum(dim=-1)


def make_videos(folder: Path) -> None:
    """Write videos with a tone and one caption per second."""
    with wids.ShardWriter(str(folder / "videos-%06d.tar"), max_samples=3) as writer:
        for number in range(NUM_VIDEOS):
            seconds = range(NUM_FRAMES // FRAMES_PER_S)
            facts = {"num_frames": NUM_FRAMES, "captions": [[s, f"video {number}, second {s}"] for s in seconds]}
            writer.write({"__key__": f"{number:06d}", ".mp4": make_video(number), ".json": facts})


def make_video(number: int) -> bytes:
    """Return an `.mp4` with a keyframe each second."""
    rng = np.random.default_rng(number)
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        video = container.add_stream("mpeg4", rate=FRAMES_PER_S, options={"g": str(FRAMES_PER_S)})
        video.width, video.height, video.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        video.bit_rate = 2_000_000
        sound = container.add_stream("aac", rate=SOUND_RATE, layout="mono")
        for index in range(NUM_FRAMES):
            pixels = rng.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
            bits = index >> np.arange(NUM_BITS) & 1
            pixels[: HEIGHT // 2] = np.repeat(bits * 255, WIDTH // NUM_BITS)[:, None]
            container.mux(video.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        tone = np.sin(2 * np.pi * 440 * np.arange(SOUND_RATE * NUM_FRAMES // FRAMES_PER_S) / SOUND_RATE)
        frame = av.AudioFrame.from_ndarray(tone.astype(np.float32)[None], format="fltp", layout="mono")
        frame.sample_rate = SOUND_RATE
        container.mux(sound.encode(frame))
        for stream in (video, sound):
            container.mux(stream.encode(None))
    return file.getvalue()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
