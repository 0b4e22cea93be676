"""Write files of tensors with PyTorch and with the GGUF project's own package, for tests of their readers.

    python -m tests.oracles.checkpoints torch      # in an environment with PyTorch
    python -m tests.oracles.checkpoints gguf       # in an environment with the package gguf 0.19

Writes to `tests/frontend/data/checkpoints`. The tensors are `wanted`; `blocks.npz` holds random blocks of
each quantised type, and the float32 numbers that the package gives.

Not here: the readers (`frontend.nn.state`).
"""

from __future__ import annotations

import collections
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tools.arguments import command, library, pytorch, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

OUT: Final = Path(__file__).parents[2] / "tests" / "frontend" / "data" / "checkpoints"
QUANTISED: Final = (
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K"),
    *("Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"),
)
HALVES: Final = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "MXFP4": ()}
"""Bytes of a block where a float16 begins, if not the first four or two."""
PLAIN: Final = {
    "epoch": 3,
    "big": 1 << 40,
    "rate": 0.125,
    "betas": (0.9, 0.999),
    "names": ["a", "b", None, True],
    "raw": b"\x00\xff",
    "set": {1},
}
"""The values of a checkpoint that are of Python's own types."""


def wanted() -> dict[str, np.ndarray[Any, Any]]:
    """Return the tensors of the files by name, without those that NumPy has no dtype for."""
    base = (np.arange(24) * 0.5 - 3).reshape(2, 3, 4)
    found: dict[str, np.ndarray[Any, Any]] = {
        name: base.astype(name)
        for name in ("float64", "float32", "float16", "int64", "int32", "int16", "int8")
    }
    found["uint8"] = np.arange(5, dtype=np.uint8)
    found["bool"] = np.array([True, False, True])
    found["scalar"] = np.array(2.5, np.float32)
    found["empty"] = np.zeros((0, 3), np.float32)
    return found


def write_torch() -> None:
    """Write a state dictionary in both formats of `torch.save`, and files that a reader must refuse."""
    torch = pytorch()
    tensors: dict[str, Any] = {name: torch.tensor(a) for name, a in wanted().items()}
    tensors["bfloat16"] = tensors["float32"].bfloat16()
    tensors["transposed"] = tensors["float32"].transpose(0, 2)
    tensors["part"] = tensors["float32"][1, 1:, ::2]
    tensors["spread"] = torch.tensor([1.5]).expand(2, 3)
    tensors["parameter"] = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    state = collections.OrderedDict(tensors)
    data = {
        "model": state,
        **PLAIN,
        "shape": torch.Size([2, 3]),
        "device": torch.device("cpu"),
        "dtype": torch.float16,
    }
    for name, zipped in (("archive", True), ("legacy", False)):
        torch.save(data, OUT / f"{name}.pt", _use_new_zipfile_serialization=zipped)
    torch.save({"u": torch.tensor([1, 65535], dtype=torch.uint16)}, OUT / "unsigned.pt")
    torch.save(torch.nn.Linear(1, 1), OUT / "module.pt")
    torch.save({"c": torch.tensor([1j])}, OUT / "complex.pt")
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), OUT / "script.pt")


def write_gguf() -> None:
    """Write a file with tensors of plain and quantised types, and blocks with their numbers."""
    gguf: Any = library("gguf", cure="pip install gguf==0.19.*")
    rng, found = np.random.default_rng(0), {}
    writer = gguf.GGUFWriter(OUT / "small.gguf", "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_string("general.name", "small")
    writer.add_bool("general.flag", True)
    writer.add_array("tokenizer.ggml.tokens", ["a", "bc", ""])
    writer.add_array("tokenizer.ggml.scores", [0.5, -1.0])
    for name in ("float64", "float32", "float16", "int64", "int32", "int16", "int8"):
        writer.add_tensor(name, wanted()[name])
    for name in QUANTISED:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        raw = rng.integers(0, 256, (3, size), np.uint8)
        for at in HALVES.get(name, (0, 2) if name in {"Q4_1", "Q5_1", "Q4_K", "Q5_K"} else (0,)):
            raw[:, at : at + 2] = rng.standard_normal(3).astype("<f2")[:, None].view(np.uint8)
        if name == "MXFP4":
            raw[:, 0] = (0, 1, 130)
        found[f"raw_{name}"], found[f"want_{name}"] = raw, gguf.quants.dequantize(raw, kind)
        if elements == 32:
            writer.add_tensor(name, raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.savez_compressed(OUT / "blocks.npz", **found)  # type: ignore[arg-type] # arrays by name


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files of the package that is named."""
    writers = {"torch": write_torch, "gguf": write_gguf}
    parser = command("tests.oracles.checkpoints", __doc__)
    parser.add_argument("package", choices=tuple(writers), help="the package that writes its files")
    package = parser.parse_args(argv).package
    OUT.mkdir(parents=True, exist_ok=True)
    writers[package]()
    print(f"written to {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(reported(main))
