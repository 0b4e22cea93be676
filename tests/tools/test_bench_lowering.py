"""The benchmark of lowering measures every kernel of its models by the passes of the compiler."""

from __future__ import annotations

import json

import pytest

import hcq
from compiler.ir.serialize import parse_kernel
from compiler.pipeline import steps
from compiler.targets import arch_for, target_of
from frontend import Tensor
from tools.bench.__main__ import main
from tools.bench.lowering import GPUS, kernels_of, lowered
from tools.bench.models import MODELS

PASSES = ("name", "plan", "linearize", "verify", "render")


@pytest.fixture(scope="module")
def arch() -> str:
    with hcq.open("cpu") as device:
        return arch_for(device.info)


def test_each_model_has_a_row_with_shares_and_one_with_llvm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lowering", "--device", "cpu", "--quick"]) == 0
    rows = {row["case"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    host = [*MODELS, "float32 products", "float16 products"]
    gpus = [f"{dtype} products, {gpu}" for dtype in ("float32", "float16") for gpu in GPUS]
    assert set(rows) == {*host, *[f"{name}, with LLVM" for name in host], *gpus}
    for name in (*host, *gpus):
        note = rows[name]["note"]
        shares = [float(note.split(f"{one} ")[-1].split(" %")[0]) for one in PASSES]
        assert sum(shares) == pytest.approx(100, abs=len(PASSES))
        assert rows[name]["unit"] == "ms"
    for name in host:
        assert rows[f"{name}, with LLVM"]["median"] > rows[name]["median"]


def test_kernels_of_pending_tensors_are_found_without_computing_them(arch: str) -> None:
    x = Tensor.ones(8, 8, device="cpu:0").contiguous().realize()
    y = x + 1
    (text,) = kernels_of([[y, y, x]], arch)
    assert "STORE" in text
    assert kernels_of([[x]], arch) == []
    assert y.tolist() == [[2.0] * 8] * 8


def test_pending_assignments_store_in_place(arch: str) -> None:
    x = Tensor.ones(8, device="cpu:0").contiguous().realize()
    x.assign(x * 3)
    (text,) = kernels_of([[x]], arch)
    assert text.count("BUFFER") == 1, "the kernel loads and stores one buffer"
    assert x.tolist() == [3.0] * 8


def test_the_passes_are_those_of_a_compilation(arch: str) -> None:
    x = Tensor.ones(64, 64, device="cpu:0").contiguous().realize()
    texts = kernels_of([[x.softmax(-1)]], arch)
    (found,) = lowered(texts, target_of(arch), 2, llvm=True)
    assert found.name == steps(parse_kernel(texts[0]), target_of(arch)).name
    assert tuple(found.passes) == PASSES
    assert found.total == sum(found.passes.values()) > 0
    assert found.llvm > 0
