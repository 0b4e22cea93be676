"""Captured and compiled functions as rows of text: a setup, a function of x, and changes between its calls.

`test_captured_state` has what functions read from outside, `test_captured_dependencies` what they do there.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import frontend as torch
from frontend import Tensor, TinyJit
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

HEAD = """
import array, collections, contextvars, ctypes, functools, io, itertools, os, queue, random, types
import secrets, uuid
import numpy as np
import frontend as torch
from frontend import Tensor, nn
from dataclasses import dataclass, field
from types import SimpleNamespace as N

class Slots:
    __slots__ = ("n",)
    def __init__(self): self.n = 1

class Descriptor:
    def __get__(self, owner, kind): return owner.__dict__.get("_z", 1)
    def __set__(self, owner, value): owner.__dict__["_z"] = value

class Base:
    k = 1
    z = Descriptor()
    def __init__(self): self.values, self.n = [1, 2], 2
    def m(self, x): return x * 2
    def by_name(self, name): return getattr(self, name)
    @property
    def p(self): return self.k + self.n
    @staticmethod
    def s(x): return x * 3
    @classmethod
    def c(cls, x): return x * cls.k
    def __iter__(self): return iter(self.values)
    def __len__(self): return len(self.values)
    def __getitem__(self, i): return self.values[i]
    def __contains__(self, i): return i in self.values
    def __bool__(self): return len(self.values) > 2
    def __float__(self): return float(self.values[0])

class Own(Base): pass

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.k, self.names, self.act = nn.Linear(2, 2), 2, {"k": 1}, torch.relu
    def helper(self, x): return x * self.k
    def forward(self, x): return self.act(self.helper(self.inner(x)) * self.names["k"])

class Scaled(nn.Module):
    def forward(self, x): return x * self.scale if hasattr(self, "scale") else x

class Keeper(nn.Module):
    def __init__(self): self.inner, self.hidden = nn.Linear(2, 2), None
    def forward(self, x):
        self.hidden = self.inner(x)
        return self.hidden.relu()

class Wrapped:
    def __init__(self, inner): self.inner = inner
    def __getattr__(self, name): return getattr(self.inner, name)

class Stepped:
    def __init__(self): self.w = torch.ones(2)
    def inner(self, x): return x * self.w
    def step(self, x): return self.inner(x) + 1

class Deeper(Stepped):
    def step(self, x): return super().step(x) + 1

@dataclass
class State:
    name: str
    w: Tensor = field(compare=False)

class Call:
    def __init__(self, x): self.x, self.parts = x, []
    def run(self):
        self.parts.append(self.x * 2)
        self.parts.append(self.parts[0] + 1)
        return self.parts[-1]

def hook(module, args, out): return out * 2
def renamed(d): d["b"] = d.pop("a")
def reordered(d): d["a"] = d.pop("a")
def count():
    n = 0
    while True:
        yield (n := n + 1)
"""
TRAINED = """
s.w, s.other = torch.tensor([1.0, 2.0], requires_grad=True), Tensor([1.0, 1.0]).realize()
s.o = nn.optim.SGD([s.w], lr=0.5, momentum=0.5)
s.seen = lambda: (s.w, s.other.grad is None)
"""
STEP = "loss = (s.w * x * s.other).sum().backward(); s.o.step(); return loss"


def given(k: int) -> Tensor:
    return Tensor([float(k), 1.0]).realize()


def shown(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [shown(v) for v in value]
    return value.tolist() if isinstance(value, Tensor) else value


def values(jit: Callable[[Any], Any], setup: str, function: str, changes: str, calls: int) -> list[Any]:
    """Return the results of calls, and what is seen after each, with a change before every k-th call."""
    s = SimpleNamespace()
    names: dict[str, Any] = {"s": s, "jit": jit, "__name__": "__main__"}
    torch.manual_seed(7)
    text = function if "return" in function else f"return {function}"
    exec(HEAD + setup, names)
    if function[0] == "=":
        names["f"] = eval(function.lstrip("="), names)
    else:
        exec(f"def f(x, *more):\n {text}", names)
    names["function"] = call = names["f"] if function[:2] == "==" else jit(names["f"])
    args, seen, before = (getattr(s, name, None) for name in ("args", "seen", "before"))
    found = []
    try:
        for number, change in enumerate(["pass", *changes.split("|")]):
            exec(change, names)
            for _ in range(calls):
                if before:
                    before()
                x = given(number)
                result = call(*args(x) if args else (x,)).tolist()
                found.append((result, shown(seen()) if seen else None))
    except UsageError as error:
        found.append(str(error))
    finally:
        for handle in filter(None, [getattr(s, "h", None)]):
            handle.remove()  # a hook of all modules
    return found


def judge(setup: str, function: str, changes: str, says: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the captured and the compiled function of a row with the function."""
    for name in ("HCQ_ROW", "HCQ_OTHER_ROW"):
        monkeypatch.setenv(name, "0")  # afterwards it is as it was
    wanted, compiled, strict = (
        values(jit, setup, function, changes, 3) for jit in (lambda f: f, torch.compile, TinyJit)
    )
    assert compiled == wanted
    if says:
        assert says in strict[-1]
        assert strict[:-1] == wanted[: len(strict) - 1]
    elif says is not None:
        assert strict == wanted
