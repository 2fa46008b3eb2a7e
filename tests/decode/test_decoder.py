"""The decoding step of a dataset: the place that errors name, users' own decoders, workers."""

from __future__ import annotations

import gzip
import multiprocessing
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import ConcatDataset, DataLoader
from webdataset import autodecode

import wids
from tests.decode.files import IMAGES, Trap, same
from tests.support import CORPORA, write_descriptor, write_tar
from wids.decode import Decoder, OwnDecoderError, basic, default_decoder, images

if TYPE_CHECKING:
    from pathlib import Path


def dataset_of(folder: Path, *members: tuple[str, bytes], **options: Any) -> Any:
    write_tar(folder / "a.tar", members)
    count = len({name.partition(".")[0] for name, _ in members})
    path = write_descriptor(folder / "d.json", [{"url": "a.tar", "nsamples": count}])
    return wids.ShardListDataset(path, **options)


BAD_JSON_AND_CUT_JPEG = (("a.json", b"{bad"), ("b.jpg", IMAGES["jpeg"][:-50]), ("c.json", b"{}"))


@pytest.mark.parametrize(("index", "key", "field"), [(0, "a", ".json"), (1, "b", ".jpg")], ids=["json", "jpeg"])
def test_the_error_for_bad_json_or_a_cut_jpeg_names_sample_field_and_command(
    index: int, key: str, field: str, tmp_path: Path
) -> None:
    dataset = dataset_of(tmp_path, *BAD_JSON_AND_CUT_JPEG)

    with pytest.raises(wids.DecodeError) as caught:
        dataset[index]

    assert str(caught.value).startswith(
        f"index {index}, shard {tmp_path}/a.tar, key '{key}', field '{field}': cannot decode: "
    )
    assert str(caught.value).endswith(f"; see it with: widsindex sample {tmp_path}/d.json {index}")
    assert isinstance(caught.value.__cause__, (ValueError, OSError))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_bad_json_and_a_cut_jpeg_are_replaced_with_on_error_replace(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, *BAD_JSON_AND_CUT_JPEG, on_error="replace")

    assert [sample["__index__"] for sample in dataset] == [2, 2, 2]


def test_a_pickle_member_runs_no_code_unless_pickles_are_allowed(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    member = ("a.pkl", pickle.dumps(Trap(str(trap))))

    with pytest.raises(wids.DecodeError, match=r"key 'a', field '\.pkl'.*allow_pickle=True.*widsindex sample"):
        dataset_of(tmp_path, member)[0]
    assert not trap.exists()
    dataset_of(tmp_path, member, allow_pickle=True)[0]["pkl"].close()
    assert trap.exists()


def upper(data: bytes) -> str:
    return data.decode().upper()


def keep(sample: Any) -> Any:
    return sample


def fail(_: bytes) -> Any:
    raise ZeroDivisionError("in my function")


def refuse(_: bytes) -> Any:
    raise wids.DecodeError("no frames")


def test_own_decoders_are_added_and_come_before_built_in_ones() -> None:
    decode = default_decoder("PIL", decoders={".upper": upper, "txt": upper, ".seg.PNG": len, ".note.json": bytes})

    assert decode({".upper": b"a", ".TXT": b"b", ".x.seg.png": b"123", ".json": b"[]", ".note.json": b"[]", ".cls": b"1"}) == {
        ".upper": "A", ".TXT": "B", ".x.seg.png": 3, ".json": [], ".note.json": b"[]", ".cls": 1,
    }  # fmt: skip
    assert default_decoder()({".txt": b"b"}) == {".txt": "b"}
    assert not {"upper", "seg.png"} & {*basic.PLAIN, *basic.WITH_PICKLE, *images.EXTENSIONS}


def test_an_own_decoder_gets_gzipped_bytes_only_if_its_name_includes_gz() -> None:
    packed = gzip.compress(b"x")

    unpacked = default_decoder(decoders={".txt": upper})({".txt.gz": packed, ".a.txt.gz": packed})
    raw = default_decoder(decoders={".txt.gz": bytes})({".txt.gz": packed, ".a.txt.gz": packed, ".txt": b"x"})
    bare = default_decoder(decoders={".gz": len})({".gz": packed})

    assert unpacked == {".txt.gz": "X", ".a.txt.gz": "X"}
    assert raw == {".txt.gz": packed, ".a.txt.gz": packed, ".txt": "x"}
    assert bare == {".gz": len(packed)}
    with pytest.raises(wids.DecodeError, match=r"'\.txt\.gz': cannot decode: gzip") as caught:
        default_decoder(decoders={".txt": upper})({".txt.gz": b"x"})
    assert not isinstance(caught.value, OwnDecoderError)


def test_the_longest_name_of_an_own_decoder_wins() -> None:
    decode = default_decoder(decoders={".png": lambda _: "any", ".seg.png": lambda _: "seg"})

    assert decode({".png": b"", ".seg.png": b"", ".x.png": b""}) == {".png": "any", ".seg.png": "seg", ".x.png": "any"}


def test_invalid_own_decoders_are_refused() -> None:
    with pytest.raises(TypeError, match=r"decoders\['\.x'\] is 3"):
        Decoder(decoders={".x": 3})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"decoders\['X'\] is the second one for the extension '\.x'"):
        Decoder(decoders={".x": upper, "X": upper})
    with pytest.raises(ValueError, match="no extension"):
        Decoder(decoders={".": upper})


def test_an_error_of_an_own_decoder_is_located_chained_and_never_replaced(tmp_path: Path) -> None:
    members = (("a.txt", b"a"), ("b.bin", b"b"), ("c.cls", b"bad"))
    step = default_decoder(decoders={".bin": fail})

    for on_error in ("raise", "replace", lambda *_: None):
        dataset = dataset_of(tmp_path, *members, transformations=step, on_error=on_error)
        with pytest.raises(wids.DecodeError) as caught:
            dataset[1]
        assert str(caught.value) == (
            f"index 1, shard {tmp_path}/a.tar, key 'b', field '.bin': the decoder that you gave raised ZeroDivisionError: "
            f"in my function; see it with: widsindex sample {tmp_path}/d.json 1"
        )
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    # Such an error is raised also when it occurs in the search for a replacement of another sample.
    dataset = dataset_of(
        tmp_path, ("a.cls", b"bad"), ("b.bin", b"b"), ("c.txt", b""), transformations=step, on_error="replace"
    )
    with pytest.raises(wids.DecodeError, match=r"index 1.*in my function"):
        dataset[0]


def test_a_decode_error_of_an_own_decoder_counts_as_damage(tmp_path: Path) -> None:
    step = default_decoder(decoders={".bin": refuse})

    dataset = dataset_of(tmp_path, ("a.bin", b"a"), ("b.txt", b"b"), transformations=step, on_error="replace")

    assert dataset[0]["__index__"] == 1
    with pytest.raises(wids.DecodeError, match=r"index 0.*key 'a', field '\.bin': cannot decode: no frames"):
        dataset_of(tmp_path, ("a.bin", b"a"), transformations=step)[0]


def test_a_decoder_pickles_before_and_after_its_first_sample() -> None:
    decoder = default_decoder("torchrgb", decoders={".up": upper}, allow_pickle=True)
    sample = {".up": b"a", ".png": IMAGES["png"], ".pkl": pickle.dumps(1), ".npy.gz": None}

    for _ in range(2):
        copy = pickle.loads(pickle.dumps(decoder))
        decoded = copy(dict(sample))
        assert (decoded[".up"], decoded[".png"].shape, decoded[".pkl"]) == ("A", (3, 9, 11), 1)
        decoder(dict(sample))


def test_spawned_workers_decode_as_the_main_process_does(tmp_path: Path) -> None:
    members = [
        (f"{n}.{extension}", data) for n in range(3) for extension, data in (("png", IMAGES["png"]), ("up", b"a"))
    ]
    plain = dataset_of(tmp_path, *members)
    plain[0]
    steps = [default_decoder(spec, decoders={".up": upper}) for spec in ("PIL", "numpy", "torchrgb8")]
    dataset: Any = ConcatDataset([plain.decode(step) for step in steps])

    loader = DataLoader(
        dataset,
        batch_size=None,
        num_workers=2,
        collate_fn=keep,
        multiprocessing_context=multiprocessing.get_context("spawn"),
    )
    found = list(loader)

    assert len(found) == 9
    for sample, expected in zip(found, dataset, strict=True):
        assert same(sample[".png"], expected[".png"])
        assert sample[".up"] == "A"


def test_a_librarys_message_is_cut_to_one_line() -> None:
    def complain(_: bytes) -> Any:
        raise ValueError("first\n  second " + "x" * 1000)

    with pytest.raises(OwnDecoderError, match=r"raised ValueError: first second x{287}…$"):
        default_decoder(decoders={".x": complain})({".x": b""})


def test_a_memory_error_in_a_decoder_is_not_taken_for_damage() -> None:
    def exhaust(_: bytes) -> Any:
        raise MemoryError

    with pytest.raises(MemoryError):
        default_decoder(decoders={".x": exhaust})({".x": b""})


@pytest.mark.skipif(not CORPORA.is_dir(), reason=f"no corpora at {CORPORA}")
@pytest.mark.parametrize("name", ["mpdata", "tendata", "compressed", "testgz"])
def test_webdatasets_own_shards_are_decoded_as_webdataset_decodes_them(name: str) -> None:
    dataset = wids.ShardListDataset([CORPORA / "tar" / "webdataset" / f"{name}.tar"], transformations="rgb8")
    by_webdataset = autodecode.Decoder([autodecode.imagehandler("rgb8")])

    for index, sample in enumerate(dataset):
        for field, data in dataset.read(index).items():
            assert same(sample[field], by_webdataset.decode1(field[1:], data))


def test_a_decode_error_in_a_worker_reaches_the_main_process_unchanged(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, *BAD_JSON_AND_CUT_JPEG)

    with pytest.raises(wids.DecodeError, match=r"index 0.*key 'a', field '\.json'.*widsindex sample"):
        list(DataLoader(dataset, batch_size=None, num_workers=1))
