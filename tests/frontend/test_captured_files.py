"""Captured functions in files: what is loaded computes what was saved, and what does not fit is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from compiler.dtype import dtypes
from frontend import Tensor, TinyJit, Variable, nn
from frontend.capture import files
from frontend.nn.state.safetensors import safe_open, write
from hcq.config import override
from hcq.errors import UsageError
from tests.children import python

if TYPE_CHECKING:
    from pathlib import Path


def trained(path: Path, **settings: Any) -> tuple[Any, Tensor, Any]:
    """Return a captured step of training, its input and its model; the step is saved to `path`."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    sgd = nn.optim.SGD(nn.state.get_parameters(net), lr=0.1, momentum=0.9)

    @TinyJit
    def step(batch: dict[str, Tensor], *, scale: float) -> tuple[Tensor, list[Tensor]]:
        with Tensor.train():
            loss = (net(batch["x"]) * scale).square().mean().backward()
            sgd.step()
        return loss, [net[2].weight, batch["x"] + 1]

    x = Tensor.randn(5, 3).realize()
    for _ in range(2):
        step({"x": x}, scale=2.0)
    step.save(path, **({"state": nn.state.get_state_dict(net)} if settings.pop("named", False) else {}))
    return step, x, net


def losses(step: Any, x: Tensor) -> list[Any]:
    Tensor.manual_seed(4)
    found = []
    for _ in range(3):
        loss, (weight, more) = step({"x": x}, scale=2.0)
        found += [loss.item(), weight.tolist(), more.tolist()]
    return found


def test_a_loaded_step_trains_a_model_of_its_own(tmp_path: Path):
    step, x, net = trained(tmp_path / "step")
    loaded = TinyJit.load(tmp_path / "step")
    before = net[2].weight.tolist()
    found = losses(loaded, x)
    assert net[2].weight.tolist() == before
    assert found == losses(step, x)
    loaded.save(tmp_path / "again")  # as it is now: it goes on from there
    assert losses(TinyJit.load(tmp_path / "again"), x) == losses(step, x)


def test_tensors_with_names_are_put_in_their_places(tmp_path: Path):
    step, x, net = trained(tmp_path / "step", named=True)
    own = TinyJit.load(tmp_path / "step")
    assert own.state.keys() == nn.state.get_state_dict(net).keys()
    other = {name: t.clone().realize() for name, t in own.state.items()}
    views = {name: t.detach() for name, t in other.items()}  # as state_dict() has them
    found = losses(TinyJit.load(tmp_path / "step", state=views), x)
    expected = losses(step, x)
    assert found == expected
    assert other["2.weight"].tolist() == net[2].weight.tolist() != own.state["2.weight"].tolist()
    weight = other.pop("2.weight")
    with pytest.raises(UsageError, match=r"2\.weight"):
        TinyJit.load(tmp_path / "step", state=other)
    for wrong in (weight.reshape(4, 1), weight.cast("float64")):
        with pytest.raises(UsageError, match=r"2\.weight"):
            TinyJit.load(tmp_path / "step", state=other | {"2.weight": wrong})


def test_arguments_are_assigned_and_variables_bound_as_before(tmp_path: Path):
    rows = Variable("rows", 1, 4)

    @TinyJit
    def add(total: Tensor, x: Tensor) -> dict[str, Any]:
        total += x.sum()
        return {"total": total, "part": x * 2}

    data = Tensor.arange(8).reshape(4, 2).cast("float32").realize()
    total = Tensor.zeros(1).contiguous().realize()
    for n in (4, 3):
        add(total, data[: rows.bind(n)])
    add.save(tmp_path / "add")
    loaded = TinyJit.load(tmp_path / "add")
    found = loaded(total, data[: rows.bind(2)])
    assert found["total"] is total
    assert total.tolist() == [28.0 + 15.0 + 6.0]
    assert found["part"].shape[0].value == 2
    assert found["part"].tolist() == [[0.0, 2.0], [4.0, 6.0]]


def changed(path: Path, **new: Any) -> None:
    """Write a file again with other facts, and a digest that fits."""
    with safe_open(path) as file:
        facts = json.loads(file.metadata[files.KEY]) | new
        parts = {n: file.raw(e.begin, e.end) for n, e in file.entries.items()}
    text = json.dumps(facts)
    digest = files._digest(text, parts.items())
    each = {n: (dtypes.uint8, (len(b),), lambda b=b: b) for n, b in parts.items()}
    write(each, path, {files.KEY: text, files.DIGEST: digest})


def simple(path: Path) -> Tensor:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    double = TinyJit(lambda v: v * 2 + v[0])
    double(x)
    double(x)
    double.save(path)
    return x


def test_kernels_of_another_compiler_are_compiled_again(tmp_path: Path):
    x = simple(tmp_path / "f")
    changed(tmp_path / "f", compiler="older")
    assert TinyJit.load(tmp_path / "f")(x).tolist() == [3.0, 5.0, 7.0]


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ({"format": 2}, "version"),
        ({"arch": "sm_999"}, "captured for sm_999"),
        ({"results": [["old", 1]]}, "no whole file"),
        ({"launches": [[7, [], [], []]]}, "no whole file"),
        ({"expect": 3}, "no whole file"),
        ({"arguments": {"set": []}}, "no whole file"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, new: dict[str, Any], words: str):
    simple(tmp_path / "f")
    changed(tmp_path / "f", **new)
    with pytest.raises(UsageError, match=words):
        TinyJit.load(tmp_path / "f")


def test_a_damaged_file_is_refused(tmp_path: Path):
    simple(tmp_path / "f")
    whole = (tmp_path / "f").read_bytes()
    for at in range(9, len(whole), max(1, len(whole) // 60)):
        (tmp_path / "g").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises((UsageError, UnicodeDecodeError)):
            TinyJit.load(tmp_path / "g")
    nn.state.safe_save({"x": Tensor([1.0])}, tmp_path / "g")
    with pytest.raises(UsageError, match="no captured function"):
        TinyJit.load(tmp_path / "g")


def test_what_cannot_be_saved_is_refused(tmp_path: Path):
    x = Tensor([1.0]).realize()
    add = TinyJit(lambda v, _what: v + 1)
    add(x, dtypes.float32)
    with pytest.raises(UsageError, match="call it twice"):
        add.save(tmp_path / "f")
    add(x, dtypes.float32)
    with pytest.raises(UsageError, match="DType"):
        add.save(tmp_path / "f")
    assert not (tmp_path / "f").exists()


def test_a_loaded_function_is_only_its_kernels(tmp_path: Path):
    x = simple(tmp_path / "f")
    loaded = TinyJit.load(tmp_path / "f")
    outer = TinyJit(lambda v: loaded(v) + 1)
    assert outer(x).tolist() == [4.0, 6.0, 8.0]
    with pytest.raises(UsageError, match="not the function"):
        outer(x)
    with override(jit=False):
        assert loaded(x).tolist() == [3.0, 5.0, 7.0]
    with pytest.raises(UsageError, match="captured as"):
        loaded(Tensor([1.0]))
    assert loaded(x * 2).tolist() == [6.0, 10.0, 14.0]


def test_checks_that_a_file_does_not_hold_are_not_silently_left_out(tmp_path: Path):
    table, at = Tensor([1.0, 2.0]).realize(), Tensor([1, 0]).realize()
    pick = TinyJit(lambda i: table[i])
    pick(at)
    pick(at)
    pick.save(tmp_path / "f")
    loaded = TinyJit.load(tmp_path / "f")
    with override(validate=False):
        assert loaded(at).tolist() == [2.0, 1.0]
    with override(validate=True), pytest.raises(UsageError, match="no checks"):
        loaded(at)


@pytest.mark.slow
def test_another_process_runs_it(tmp_path: Path):
    x = simple(tmp_path / "f")
    code = (
        "import sys; from frontend import Tensor, TinyJit\n"
        "print(TinyJit.load(sys.argv[1])(Tensor([1.0, 2.0, 3.0])).tolist())"
    )
    done = python("-c", code, str(tmp_path / "f"))
    assert done.stdout.strip() == str((x * 2 + x[0]).tolist())
