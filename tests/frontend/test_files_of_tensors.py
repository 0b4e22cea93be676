"""Files of tensors: safetensors, PyTorch's checkpoints, GGUF; malformed ones are refused.

`data/checkpoints` was written by PyTorch 2.13 and the package gguf 0.19 (`tests.oracles.checkpoints`).
"""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontend import Tensor, dtypes, load, nn
from frontend.nn.state import checkpoints, gguf, pickled, tensor_file
from frontend.nn.state.tensor_file import Contents
from hcq.errors import UnsupportedError, UsageError
from tests.oracles.checkpoints import PLAIN, wanted

DATA = Path(__file__).parent / "data" / "checkpoints"
WANTED = wanted()


def equal(got: Tensor, want: np.ndarray) -> None:
    assert (got.shape, got.dtype.name) == (want.shape, want.dtype.name)
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("name", ["archive.pt", "legacy.pt"])
def test_a_checkpoint_is_read_in_both_formats(name: str):
    found = nn.state.torch_load(DATA / name)
    model = found.pop("model")
    assert found == {**PLAIN, "shape": (2, 3), "device": "cpu", "dtype": dtypes.float16}
    for key, want in WANTED.items():
        equal(model.pop(key), want)
    base = WANTED["float32"]
    bfloat16 = model.pop("bfloat16")
    assert bfloat16.dtype is dtypes.bfloat16
    np.testing.assert_array_equal(bfloat16.cast("float32").numpy(), base)
    equal(model.pop("transposed"), base.transpose(2, 1, 0))
    equal(model.pop("part"), base[1, 1:, ::2])
    equal(model.pop("spread"), np.full((2, 3), 1.5, np.float32))
    parameter = model.pop("parameter")
    assert (parameter.requires_grad, parameter.tolist()) == (True, [1.0, 2.0])
    assert model == {}


def test_a_checkpoint_of_unsigned_numbers_is_read():
    assert nn.state.torch_load(DATA / "unsigned.pt")["u"].tolist() == [1, 65535]


@pytest.mark.parametrize(
    ("file", "place", "text"),
    [
        (DATA / "unsigned.pt", lambda storage, _: storage.cuda(0), "name the device"),
        (DATA / "unsigned.pt", lambda _, place: place, "name the device"),
        (3, None, "a path or a binary stream"),
        (io.StringIO("text"), None, "a path or a binary stream"),
    ],
)
def test_other_places_and_other_streams_are_refused(file: Any, place: Any, text: str):
    with pytest.raises(UsageError, match=text):
        load(file, map_location=place)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("module.pt", "torch.nn.modules.linear.Linear"),
        ("complex.pt", "torch.ComplexFloatStorage"),
        ("script.pt", "TorchScript"),
    ],
)
def test_what_is_no_plain_data_is_refused_by_name(name: str, reason: str):
    with pytest.raises(UnsupportedError, match=reason):
        nn.state.torch_load(DATA / name)


def archive(pickle_of: bytes, path: Path, **entries: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x/data.pkl", pickle_of)
        for name, data in entries.items():
            file.writestr(f"x/{name}", data)
    return path


class Runs:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("protocol", range(2, 6))
def test_nothing_of_a_pickle_is_run(protocol: int, tmp_path: Path):
    marker = tmp_path / "run"
    text = pickle.dumps({"a": Runs(Path.touch, marker)}, protocol)
    with pytest.raises(UnsupportedError, match=r"getattr|pathlib"):
        nn.state.torch_load(archive(text, tmp_path / "a.pt"))
    text = pickle.dumps(Runs(eval, f"open({str(marker)!r}, 'w')"), protocol)
    with pytest.raises(UnsupportedError, match="eval"):
        nn.state.torch_load(archive(text, tmp_path / "b.pt"))
    assert not marker.exists()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\x80\x02",
        b"\x80\x02.",
        b"\x80\x02(.",
        b"\x80\x02h\x05.",
        b"\x80\x02}K\x01s.",
        b"\x80\x02K\x01K\x02a.",
        b"\x80\x02}](K\x01K\x01s.",
        b"\x80\x02\x8c\x09torch.foo\x93.",
        b"\x80\x02X\xff\xff\xff\x7fabc.",
        b"\x80\x02(((((.",
        b"\x80\x02K\x01K\x02K\x03.",
        b"\x80\x02ccollections\nOrderedDict\nK\x01R.",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.",
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x02K\x03K\x04K\x05NtR.",
        b"\x80\x02X\x07\x00\x00\x00storageQ.",
        b"\x80\x02(X\x07\x00\x00\x00storageK\x01K\x02K\x03K\x04tQ.",
        b"\x80\x02}" + b")" + b"\x85" * 20_000 + b"K\x01s.",
        b"\xff\xff.",
    ],
)
def test_a_malformed_pickle_is_refused(text: bytes, tmp_path: Path):
    with pytest.raises((UsageError, UnsupportedError)):
        nn.state.torch_load(archive(text, tmp_path / "a.pt"))


def test_a_tensor_beyond_its_storage_is_refused(tmp_path: Path):
    def checkpoint(*place: Any) -> Path:
        storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ"
        parts = b"".join([pickle.dumps(part, 2)[2:-1] for part in (*place, False, {})])
        text = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + parts + b"tR."
        return archive(text, tmp_path / "a.pt", **{"data/0": bytes(16)})

    assert nn.state.torch_load(checkpoint(1, (3,), (1,))).tolist() == [0.0] * 3
    for bad in ((2, (3,), (1,)), (0, (2, 2), (3, 2)), (-1, (1,), (1,)), (0, (5,), (1,)), (0, (2,), (1, 1))):
        with pytest.raises(UsageError):
            nn.state.torch_load(checkpoint(*bad))
    with pytest.raises(UnsupportedError, match="repeats"):
        nn.state.torch_load(checkpoint(0, (1 << 40,), (0,)))


@pytest.mark.parametrize("name", gguf.PACKINGS, ids=lambda kind: gguf.PACKINGS[kind].name)
def test_blocks_are_dequantised_to_the_last_bit(name: int):
    packing = gguf.PACKINGS[name]
    with np.load(DATA / "blocks.npz") as data:
        raw, want = data[f"raw_{packing.name}"], data[f"want_{packing.name}"]
    got = packing.read(Tensor(raw)).numpy()
    assert got.dtype == np.float32
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("kind", gguf.PACKINGS, ids=lambda kind: gguf.PACKINGS[kind].name)
@pytest.mark.parametrize("rows", [0, 1])
def test_a_gguf_tensor_of_blocks_may_have_no_rows_or_one(kind: int, rows: int, tmp_path: Path):
    packing, path = gguf.PACKINGS[kind], tmp_path / "x.gguf"
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", 1) + b"x"
    head += struct.pack("<IQQIQ", 2, packing.elements, rows, kind, 0)
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(rows * packing.size))
    with nn.state.gguf_open(path) as file:
        assert file["x"].shape == (rows, packing.elements)
        assert file["x"].numpy().size == rows * packing.elements
        assert file.rows("x", 0, 0).shape == (0, packing.elements)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (1,), (1, 1), ()])
def test_safetensors_hold_tensors_of_no_elements_or_one(shape: tuple[int, ...], tmp_path: Path):
    want, path = np.zeros(shape, np.float32), tmp_path / "x"
    nn.state.safe_save({"x": Tensor(want)}, path)
    equal(nn.state.safe_load(path)["x"], want)


def test_a_gguf_file_is_read_tensor_by_tensor():
    with nn.state.gguf_open(DATA / "small.gguf") as file:
        assert file.metadata["general.architecture"] == "llama"
        assert file.metadata["llama.rope.freq_base"] == 10000.0
        assert file.metadata["general.flag"] is True
        assert file.metadata["tokenizer.ggml.tokens"] == ["a", "bc", ""]
        assert file.metadata["tokenizer.ggml.scores"] == [0.5, -1.0]
        for name in ("float64", "float32", "float16", "int64", "int32", "int16", "int8"):
            equal(file[name], WANTED[name])
        with np.load(DATA / "blocks.npz") as data:
            want = data["want_Q5_1"]
        equal(file["Q5_1"], want)
        equal(file.rows("Q5_1", 1, 3), want[1:3])
        equal(file.rows("float32", 1, 2), WANTED["float32"][1:])
    metadata, tensors = nn.state.gguf_load(DATA / "small.gguf")
    assert (metadata["general.name"], len(tensors)) == ("small", 14)


def test_safetensors_are_mapped_and_read_when_asked_for(tmp_path: Path):
    path, table = tmp_path / "x.safetensors", np.arange(12, dtype=np.float32).reshape(4, 3)
    nn.state.safe_save({"table": Tensor(table), "half": Tensor([1.5], dtype="bfloat16")}, path, {"a": "b"})
    with nn.state.safe_open(path) as file:
        assert (list(file), "table" in file, file.metadata) == (["table", "half"], True, {"a": "b"})
        assert file.entries["table"].shape == (4, 3)
        equal(file["table"], table)
        equal(file.rows("table", 1, 3), table[1:3])
        with pytest.raises(UsageError, match=r"rows"):
            file.rows("table", 3, 5)
        with pytest.raises(KeyError):
            file["other"]
    with pytest.raises(UsageError, match="closed"):
        file["table"]
    unclosed = nn.state.safe_open(path)
    with pytest.warns(ResourceWarning, match="not closed"):
        unclosed.__del__()


@pytest.mark.parametrize("kind", ["safetensors", "gguf"])
def test_a_file_that_is_cut_off_while_it_is_open_is_refused(kind: str, tmp_path: Path):
    path = tmp_path / "x"
    if kind == "safetensors":
        nn.state.safe_save({"a": Tensor(np.zeros(3, "f")), "b": Tensor(np.ones(20_000, "f"))}, path)
        file = nn.state.safe_open(path)
    else:
        path.write_bytes((DATA / "small.gguf").read_bytes())
        file = nn.state.gguf_open(path)
    with file:
        last = max(file.entries, key=lambda name: file.entries[name].end)
        os.truncate(path, 512)
        with pytest.raises(UsageError, match="was cut off while it was open"):
            file[last]
        with pytest.raises(UsageError, match="was cut off"):
            file.rows(last, 0, file.entries[last].shape[0])
        os.truncate(path, 0)
        with pytest.raises(UsageError, match="it has 0"):
            file[next(iter(file))]


@pytest.mark.parametrize("reads", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("name", ["archive.pt", "legacy.pt", "small.gguf", "small.safetensors"])
def test_a_file_that_is_cut_off_while_it_is_read_is_refused(
    name: str, reads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, left = tmp_path / name, [reads]
    if name == "small.safetensors":
        nn.state.safe_save({n: Tensor(np.zeros(3, "f")) for n in "abcdef"}, path)
    else:
        path.write_bytes((DATA / name).read_bytes())

    class Cut(Contents):
        def __getitem__(self, part: slice) -> bytes:
            if not left[0]:
                os.truncate(path, 0)
            left[0] -= 1
            return super().__getitem__(part)

    for module in (checkpoints, tensor_file):
        monkeypatch.setattr(module, "Contents", Cut)
    load: Any = {".pt": nn.state.torch_load, ".gguf": nn.state.gguf_load}.get(path.suffix, nn.state.safe_load)
    with pytest.raises(UsageError, match=r"was cut off while it was open: .* it has 0"):
        load(path)


def test_names_given_twice_and_deep_headers_are_refused(tmp_path: Path):
    path = tmp_path / "x.safetensors"
    entry = json.dumps({"dtype": "F32", "shape": [0], "data_offsets": [0, 0]})
    for header in (f'{{"a": {entry}, "a": {entry}}}', "[" * 100_000):
        path.write_bytes(struct.pack("<Q", len(header)) + header.encode())
        with pytest.raises(UsageError, match="no safetensors file"):
            nn.state.safe_load(path)


@pytest.mark.parametrize("begins", [(0, 0), (0, 4), (4, 12), (0, 12)])
def test_tensors_that_share_bytes_or_leave_some_out_are_refused(begins: tuple[int, int], tmp_path: Path):
    """Two tensors of 8 bytes in a safetensors file, and in the aligned blocks of a GGUF file."""
    path, entries = tmp_path / "x", {}
    for name, at in zip("ab", begins, strict=True):
        entries[name] = {"dtype": "F32", "shape": [2], "data_offsets": [at, at + 8]}
    header = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(20))
    with pytest.raises(UsageError, match=r"malformed: [ab] begins at byte .*; wanted"):
        nn.state.safe_load(path)
    path.write_bytes(path.read_bytes()[: 8 + len(header) + 7])
    with pytest.raises(UsageError, match=r"x, a: bytes \d+ to \d+ of 7 bytes of elements: cut off"):
        nn.state.safe_load(path)
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, 0)
    for name, at in zip(b"ab", begins, strict=True):
        head += struct.pack("<QBIQIQ", 1, name, 1, 2, 0, 4 * at)
    path.write_bytes(head + bytes(-len(head) % 32) + bytes(128))
    with pytest.raises(UsageError, match=r"malformed: [ab] begins at byte .*; wanted"):
        nn.state.gguf_load(path)


def test_bytes_behind_the_last_tensor_and_metadata_given_twice_are_refused(tmp_path: Path):
    path = tmp_path / "x"
    nn.state.safe_save({"a": Tensor([1.0])}, path)
    path.write_bytes(path.read_bytes() + bytes(4))
    with pytest.raises(UsageError, match="tensors end at byte"):
        nn.state.safe_load(path)
    value = struct.pack("<QBII", 1, ord("k"), 4, 7)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + value * 2 + bytes(64))
    with pytest.raises(UsageError, match="metadata k is there twice"):
        nn.state.gguf_load(path)


def damaged(data: bytes, count: int) -> list[bytes]:
    """Return a file cut off at some places, and with some bytes changed."""
    rng = random.Random(0)
    cut = [data[: rng.randrange(len(data))] for _ in range(count)]
    changed = []
    for _ in range(count):
        copy = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            copy[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        changed.append(bytes(copy))
    return [*cut, *changed]


def attempt(read: Any, path: Path) -> int:
    try:
        read(path)
    except (UsageError, UnsupportedError):
        return 1
    return 0


@pytest.mark.parametrize("name", ["archive.pt", "legacy.pt", "small.gguf", "x.safetensors"])
def test_a_damaged_file_is_refused_or_read_and_never_crashes(name: str, tmp_path: Path):
    if name == "x.safetensors":
        whole = tmp_path / "whole"
        nn.state.safe_save({k: Tensor(v) for k, v in WANTED.items()}, whole)
        data, read = whole.read_bytes(), nn.state.safe_load
    else:
        data = (DATA / name).read_bytes()
        read = nn.state.gguf_load if name.endswith("gguf") else nn.state.torch_load
    path, refused = tmp_path / name, 0
    files = damaged(data, 40)
    for i, file in enumerate(files):
        path.write_bytes(file)
        found = attempt(read, path)
        assert found or i >= 40 or name == "small.gguf", f"a file cut off to {len(file)} bytes was read"
        refused += found
    assert 40 <= refused <= len(files)


def test_the_reader_of_pickles_reads_what_pickle_writes():
    data = {
        "a": [1, -2, 1 << 70, 0.5, None, True],
        ("b", 1): ("x", b"y", "é" * 300),
        3: {"n": {}},
        "s": {1, 2},
    }
    for protocol in range(2, 6):
        text = pickle.dumps(data, protocol)
        encode = pickled.PickledGlobal("encode", lambda args: args[0].encode(args[1]))
        known: dict[str, Any] = {"_codecs.encode": encode}
        for module in ("builtins", "__builtin__"):
            known[f"{module}.set"] = pickled.PickledGlobal("set", lambda args: set(args[0]))
        assert pickled.read(io.BytesIO(text), known, lambda _: None, "test") == data
