"""Copy-on-write: writes are in place if no tensor aliases the old contents, independent of references."""

from __future__ import annotations

import ast
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import compiler
import drivers
import frontend
import hcq
from frontend import Device, Tensor, TinyJit, nn
from frontend.evaluation import plan
from frontend.evaluation.realize import PENDING
from frontend.evaluation.storage import UNSUBMITTED
from frontend.optim import SGD, AdamW
from hcq.config import override

COUNTING = {"getrefcount", "get_referrers", "get_referents", "getweakrefcount", "getweakrefs"}
"""Functions that count references; their results differ between interpreters."""
INSIDE = str(Path(frontend.__path__[0]))


@pytest.mark.parametrize("package", [hcq, drivers, compiler, frontend], ids=lambda p: p.__name__)
def test_no_product_code_counts_references(package: Any):
    found = []
    for path in sorted(Path(package.__path__[0]).rglob("*.py")):
        if not any(name in path.read_text() for name in COUNTING):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                {node.attr}
                if isinstance(node, ast.Attribute)
                else {node.id}
                if isinstance(node, ast.Name)
                else {a.name for a in node.names}
                if isinstance(node, (ast.Import, ast.ImportFrom))
                else set()
            )
            found += [f"{path.name}: {n}" for n in names & COUNTING]
    assert found == []


def submissions(device: str) -> int:
    return Device[device].queue.timeline.last.value


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["sgd", "momentum", "adamw"])
def test_an_optimiser_step_is_one_launch_in_place(kind: str):
    net = [nn.Linear(4, 8), nn.Linear(8, 2)]
    params = [p for layer in net for p in (layer.weight, layer.bias)]
    opt: Any = {
        "sgd": lambda: SGD(params, 0.1),
        "momentum": lambda: SGD(params, 0.1, momentum=0.9),
        "adamw": lambda: AdamW(params, 0.1),
    }[kind]()
    states = [*params, *getattr(opt, "m", []), *getattr(opt, "v", []), *getattr(opt, "b", [])]

    def loss(x: Tensor) -> Tensor:
        return net[1](net[0](x).relu()).square().mean()

    def step(x: Tensor) -> None:
        loss(x).backward()
        opt.step()

    x = Tensor(np.ones((3, 4), "f")).realize()
    step(x)
    homes = [p.leaves[0].buffer for p in states]
    for _ in range(3):
        before = submissions(x.device)
        step(x)
        assert submissions(x.device) == before + 1
        assert [p.leaves[0].buffer for p in states] == homes
    captured = TinyJit(step)
    captured(x)
    captured(x)
    for _ in range(3):
        before = submissions(x.device)
        captured(x)
        assert submissions(x.device) == before + 1
        assert [p.leaves[0].buffer for p in states] == homes


@pytest.mark.parametrize("held", ["tuple", "leaf", "tensor", "view", "computed", "pending", "nothing"])
@pytest.mark.parametrize("way", ["eager", "group", "captured"])
def test_tensors_that_alias_the_old_contents_keep_them(held: str, way: str):
    w, other = Tensor([1.0, 2.0, 3.0]), Tensor([5.0])
    place = w.leaves[0].buffer

    def advance() -> None:
        w.assign(w * 10)
        if way == "group":
            other.assign(other + 1)
            Tensor.realize(w, other)
        w.realize()

    run = TinyJit(advance) if way == "captured" else advance
    for i in range(4):
        value = [10.0**i * x for x in (1.0, 2.0, 3.0)]
        keep: dict[str, Any] = {
            "tuple": lambda: w.leaves,
            "leaf": lambda: w.leaves[0],
            "tensor": lambda: Tensor(w),
            "view": lambda: w[1:] + 0,
            "computed": (w + 1).realize,
            "pending": lambda: w + 1,
            "nothing": lambda: None,
        }
        kept = keep[held]()
        w.used = w.used or held in {"tuple", "leaf"}  # whoever takes leaves says so
        run()
        assert w.tolist() == [10 * x for x in value]
        assert w.leaves[0].buffer is place
        if held in {"tuple", "leaf"}:
            leaf = kept[0] if held == "tuple" else kept
            assert Tensor.of_part((w.expr, (leaf,))).tolist() == value
        elif kept is not None:
            want = {"tensor": value, "view": value[1:]}.get(held, [x + 1 for x in value])
            assert kept.tolist() == want


def test_an_assigned_alias_gets_memory_of_its_own():
    a = Tensor([1.0])
    b = Tensor.of_part((a.expr, a.leaves))
    a.assign(a + 1)
    b.assign(b + 10)
    a.realize()
    b.assign(b * 2)
    assert (a.tolist(), b.tolist(), a.tolist()) == ([2.0], [22.0], [2.0])
    assert a.leaves[0].buffer is not b.leaves[0].buffer


class Stop(Exception):  # noqa: N818 - no error of the program
    """Raised at some call inside an operation."""


def in_frontend(frame: Any) -> bool:
    return frame.f_code.co_filename.startswith(INSIDE)


def stopped_at(at: int, operation: Any) -> bool:
    """Run an operation that is interrupted at call number `at` in the frontend; return whether it was."""
    calls = 0

    def stop(frame: Any, event: str, _argument: object) -> None:
        nonlocal calls
        if event == "call" and in_frontend(frame):
            calls += 1
            if calls > at:
                sys.setprofile(None)
                raise Stop

    sys.setprofile(stop)
    try:
        operation()
    except Stop:
        return True
    finally:
        sys.setprofile(None)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("check", [False, True])
def test_a_launch_that_fails_anywhere_leaves_every_value(monkeypatch: pytest.MonkeyPatch, *, check: bool):
    monkeypatch.setattr(plan, "_MANY", {})
    source = Tensor([1.0, 2.0]).realize()
    for at in range(1000):
        w, v = Tensor([3.0, 4.0]), Tensor([7.0])
        held, part = w + 0, w[1:]
        w.assign(source * 10)  # the same however often it is stored
        v.assign(source.sum())
        new = source + 1
        with override(check=check):
            stopped = stopped_at(at, lambda w=w, v=v, new=new: Tensor.realize(w, v, new))
        assert not UNSUBMITTED, f"stopped at call {at}"
        values = [t.tolist() for t in (held, w, v, new, part)]
        assert values == [[3.0, 4.0], [10.0, 20.0], [3.0], [2.0, 3.0], [20.0]], f"stopped at call {at}"
        assert not {id(w), id(v), id(new)} & set(PENDING)
        if not stopped:
            assert at > 20
            return
    raise AssertionError("no end of calls")


def test_a_thread_that_reads_while_a_launch_is_submitted_sees_the_new_value():
    source = Tensor([1.0, 2.0]).realize()
    for at in range(1000):
        w = Tensor([3.0, 4.0])
        old = w * 2
        w.assign(source * 10)
        new = source + 1
        seen: list[Any] = []
        reader = threading.Thread(
            target=lambda w=w, new=new, seen=seen: seen.append((new.tolist(), w.tolist(), (w + 0).tolist()))
        )
        calls = 0

        def read(frame: Any, event: str, _argument: object, at: int = at, reader: Any = reader) -> None:
            nonlocal calls
            if event == "call" and (in_frontend(frame) or in_frontend(frame.f_back)):
                calls += 1
                if calls == at + 1:
                    sys.setprofile(None)
                    reader.start()
                    reader.join(0.005)

        sys.setprofile(read)
        try:
            Tensor.realize(w, new)
        finally:
            sys.setprofile(None)
        if reader.ident is None:
            assert at > 20
            return
        reader.join()
        assert seen == [([2.0, 3.0], [10.0, 20.0], [10.0, 20.0])], f"read at call {at}"
        assert old.tolist() == [6.0, 8.0], f"read at call {at}"
    raise AssertionError("no end of calls")


def test_a_view_that_is_replaced_leaves_its_family_whatever_the_shapes_and_values_are():
    root = Tensor([1.0, 2.0, 3.0])
    first, second = root[0:2], root[0:1]
    first.replace(Tensor([7.0, 8.0]))
    assert (first.tolist(), root.tolist()) == ([7.0, 8.0], [1.0, 2.0, 3.0])
    second[0] = 5.0
    assert (root.tolist(), first.tolist()) == ([5.0, 2.0, 3.0], [7.0, 8.0])
