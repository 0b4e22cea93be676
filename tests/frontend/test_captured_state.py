"""What functions read from outside, as rows: setup, expression, change. No capture returns an old value.

Each row is a function of x that reads `s`, called three times before and three times after each change. A
compiled one has the values of the function itself; a `TinyJit` has them, or raises `UsageError`. What cannot
be followed is a reason to run plainly.

Not here: programs, and the errors of `TinyJit` (`test_captured_dependencies`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import frontend as torch
from frontend import Tensor, TinyJit
from hcq.errors import UsageError
from tests.frontend.test_captured_dependencies import given

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = """
import array, collections, contextvars, ctypes, functools, io, itertools, os, queue, random, types
import secrets, uuid
import numpy as np
import frontend as torch
from frontend import nn
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

def hook(module, args, out): return out * 2
def renamed(d): d["b"] = d.pop("a")
def reordered(d): d["a"] = d.pop("a")
def count():
    n = 0
    while True:
        yield (n := n + 1)
"""
GROWS = "s.o.values[0] = 7; s.o.values.append(3)"
ROWS: dict[str, tuple[str, str, str]] = {
    "sum of an array": ("s.a = np.arange(2.0)", "x + s.a.sum()", "s.a += 1"),
    "elements of an array": ("s.a = np.arange(2.0)", "x * s.a.tolist()[1]", "s.a += 1"),
    "function of an array": ("s.a = np.arange(2.0)", "x + float(np.mean(s.a))", "s.a += 1"),
    "array as a tensor": ("s.a = np.arange(2.0)", "x + torch.tensor(s.a)", "s.a += 1"),
    "form of an array": ("s.a = np.arange(2.0)", "x * s.a.shape[0]", "s.a = np.arange(3.0)"),
    "large array": ("s.a = np.zeros(90000)", "x + float(s.a[-1])", "s.a += 1"),
    "typed array": ("s.a = array.array('d', [1.0])", "x + s.a[0]", "s.a[0] += 1"),
    "bytes": ("s.a = bytearray(3)", "x + s.a[0]", "s.a[0] += 1"),
    "view of bytes": ("s.a = memoryview(bytearray(3))", "x + s.a[0]", "s.a[0] += 1"),
    "number of C": ("s.a = ctypes.c_int(1)", "x + s.a.value", "s.a.value += 1"),
    "structure of C": ("s.a = (ctypes.c_int * 2)(1, 2)", "x + s.a[1]", "s.a[1] += 1"),
    "length of a list": ("s.l = [1]", "x * len(s.l)", "s.l.append(1)"),
    "member of a list": ("s.l = [1]", "x * (3 in s.l)", "s.l.append(3)"),
    "count in a list": ("s.l = [1, 1]", "x * s.l.count(1)", "s.l[0] = 5"),
    "greatest of a list": ("s.l = [1, 2]", "x * max(s.l, key=lambda v: -v)", "s.l[0] = 5"),
    "list in a tuple": ("s.l = ([1],)", "x * s.l[0][0]", "s.l[0][0] = 4"),
    "objects in a list": ("s.l = [N(c=1), N(c=2)]", "x * sum(v.c for v in s.l)", "s.l[1].c = 9"),
    "set": ("s.l = {1}", "x * sum(s.l)", "s.l.add(4)"),
    "queue": ("s.l = collections.deque([1, 2])", "x * s.l[0]", "s.l.rotate()"),
    "new key": ("s.d = {}", "x * s.d.get('a', 2)", "s.d['a'] = 1"),
    "key by a variable": ("s.d, s.k = {'a': 1, 'b': 2}, 'a'", "x * s.d[s.k]", "s.k = 'b'; s.d['b'] = 3"),
    "other key": ("s.d = {'a': 1}", "x * ord([*s.d][0])", "renamed(s.d)"),
    "order of keys": ("s.d = {'a': 1, 'b': 1}", "x * ord([*s.d][0])", "reordered(s.d)"),
    "order of values": ("s.d = {'a': 1, 'b': 2}", "x * [*s.d.values()][0]", "reordered(s.d)"),
    "objects in a dictionary": ("s.d = {'a': N(c=1)}", "x * sum(v.c for v in s.d.values())",
        "s.d['a'].c = 9"),
    "dictionary in a dictionary": ("s.d = {'a': {'b': [1, 2]}}", "x * s.d['a']['b'][1]",
        "s.d['a']['b'][1] = 7"),
    "counter": ("s.d = collections.Counter('a')", "x * s.d['a']", "s.d.update('a')"),
    "attribute by name": ("s.c, s.e, s.name = 1, 5, 'c'", "x * getattr(s, s.name)", "s.name = 'e'; s.e = 6"),
    "whether there is an attribute": ("pass", "x * (2 if hasattr(s, 'g') else 3)", "s.g = 1"),
    "all attributes": ("s.c, s.e = 1, 5", "x * sum(v for v in vars(s).values() if type(v) is int)",
        "s.e = 6"),
    "attribute by name in a method": ("s.o = Own()", "x * s.o.by_name('n')", "s.o.n = 5"),
    "slot": ("s.o = Slots()", "x * s.o.n", "s.o.n += 1"),
    "descriptor": ("s.o = Own()", "x * s.o.z", "s.o.z = 5"),
    "property": ("s.o = Own()", "x * s.o.p", "s.o.n = 5"),
    "other property": ("s.o = Own()", "x * s.o.p", "Own.p = property(lambda self: 9)"),
    "attribute of a class": ("s.o = Own()", "x * s.o.k", "Base.k = 6|Own.k = 5|s.o.k = 7"),
    "attribute by its class": ("s.o = Own()", "x * Own.k", "Own.k = 5"),
    "class method": ("s.o = Own()", "s.o.c(x)", "Own.k = 5"),
    "class method by its class": ("s.o = Own()", "Own.c(x)", "Own.k = 5"),
    "other method": ("s.o = Own()", "s.o.m(x)",
        "Own.m = lambda self, x: x * 8|s.o.m = lambda x: x * 9|del s.o.m"),
    "other method of a base": ("s.o = Own()", "s.o.m(x)", "Base.m = lambda self, x: x * 8"),
    "other static method": ("s.o = Own()", "s.o.s(x)", "Own.s = staticmethod(lambda x: x * 9)"),
    "other function": ("s.f = torch.exp", "s.f(x)", "s.f = torch.sin"),
    "partial function": ("s.f = functools.partial(torch.mul, other=3)", "s.f(x)",
        "s.f = functools.partial(torch.mul, other=4)"),
    "class of a value": ("s.v = 1", "x * 2 if isinstance(s.v, int) else x * 3", "s.v = 'a'"),
    "iteration": ("s.o = Own()", "x * sum(s.o)", GROWS),
    "length": ("s.o = Own()", "x * len(s.o)", GROWS),
    "item": ("s.o = Own()", "x * s.o[0]", GROWS),
    "member": ("s.o = Own()", "x * (3 in s.o)", GROWS),
    "truth": ("s.o = Own()", "x * 2 if s.o else x * 3", GROWS),
    "number": ("s.o = Own()", "x * float(s.o)", GROWS),
    "environment": ("os.environ['HCQ_ROW'] = '1'", "x * int(os.environ['HCQ_ROW'])",
        "os.environ['HCQ_ROW'] = '2'"),
    "variable of the environment": ("pass", "x * int(os.getenv('HCQ_OTHER_ROW', '1'))",
        "os.environ['HCQ_OTHER_ROW'] = '2'"),
    "module": ("s.m = types.ModuleType('m'); s.m.k = 2", "x * s.m.k", "s.m.k = 7"),
    "written tensor": ("s.t = torch.ones(2)", "x * s.t",
        "s.t.add_(1)|s.t = s.t + 1|s.t.data = torch.zeros(2)"),
    "view of a written tensor": ("s.t = torch.ones(4); s.v = s.t[:2]", "x * s.v", "s.t.add_(1)|s.v.mul_(3)"),
    "hook": ("s.l = nn.Linear(2, 2)", "s.l(x)", "s.h = s.l.register_forward_hook(hook)|s.h.remove()"),
    "removed hook": ("s.l = nn.Sequential(nn.Linear(2, 2)); s.h = s.l[0].register_forward_hook(hook)",
        "s.l(x)",
        "s.h.remove()"),
    "hook that reads": ("s.l = nn.Linear(2, 2); s.k = 2; s.l.register_forward_hook(lambda m, i, o: o * s.k)",
        "s.l(x)",
        "s.k = 3"),
    "hook of all modules": ("s.l = nn.Linear(2, 2)", "s.l(x)",
        "s.h = nn.modules.module.register_module_forward_hook(hook)|s.h.remove()"),
    "mode of a layer": ("s.l = nn.Dropout(0.0)", "s.l(x) * (2 if s.l.training else 3)",
        "s.l.eval()|s.l.train()"),
    "other activation": ("s.l = Net()", "s.l(x)", "s.l.act = torch.tanh"),
    "other helper": ("s.l = Net()", "s.l(x)", "s.l.helper = lambda x: x * 50"),
    "other layer": ("s.l = Net()", "s.l(x)", "s.l.inner = nn.Linear(2, 2, bias=False)"),
    "no bias": ("s.l = Net()", "s.l(x)", "s.l.inner.bias = None"),
    "other forward": ("s.l = Net()", "s.l(x)", "s.l.inner.forward = lambda x: x * 3"),
    "number of a layer": ("s.l = Net()", "s.l(x)", "s.l.k = 3|s.l.names['k'] = 4"),
    "layers": ("s.l = nn.Sequential(nn.Linear(2, 2))", "s.l(x)", "s.l.append(nn.Tanh())|s.l[0] = nn.ReLU()"),
}  # fmt: skip
"""Name -> (setup, expression, changes divided by "|")."""
STEPS: dict[str, tuple[str, str]] = {
    "seeded generator": ("s.r = random.Random(0)", "x + s.r.random()"),
    "generator of NumPy": ("s.r = np.random.default_rng(0)", "x + s.r.random()"),
    "old generator of NumPy": ("s.r = np.random.RandomState(0)", "x + float(s.r.rand())"),
    "generator of the module": ("random.seed(0)", "x + random.random()"),
    "generator of NumPy's module": ("np.random.seed(0)", "x + float(np.random.rand())"),
    "new generator": ("s.n = 0", "x * 0 + (np.random.default_rng().random() < 2)"),
    "generator function": ("s.i = count()", "x + next(s.i)"),
    "count": ("s.i = itertools.count()", "x + next(s.i)"),
    "chain": ("s.i = itertools.chain(range(9))", "x + next(s.i)"),
    "iterator of an array": ("s.i = np.nditer(np.arange(9))", "x + int(next(s.i))"),
    "lines": ("s.i = io.StringIO('1\\n2\\n3\\n4\\n5\\n6\\n7\\n')", "x + int(s.i.readline())"),
    "popped": ("s.l = list(range(9))", "x + s.l.pop()"),
    "first out": ("s.l = collections.deque(range(9))", "x + s.l.popleft()"),
    "queue of threads": ("s.q = queue.Queue(); [s.q.put(i) for i in range(9)]", "x + s.q.get()"),
    "variable of a context": ("s.v = contextvars.ContextVar('v', default=0)",
        "(s.v.set(s.v.get() + 1), x + s.v.get())[1]"),
    "environment": ("os.environ['HCQ_ROW'] = '1'",
        "(os.environ.update(HCQ_ROW=os.environ['HCQ_ROW'] + '0'), x + int(os.environ['HCQ_ROW']))[1]"),
    "bytes": ("s.a = bytearray(1)", "(s.a.__setitem__(0, s.a[0] + 1), x + s.a[0])[1]"),
}  # fmt: skip
"""Name -> (setup, expression that also changes what it reads)."""
DRAWN = ("secrets.randbelow(1 << 60)", "uuid.uuid4().int % (1 << 60)", "random.SystemRandom().random()",
         "int.from_bytes(os.urandom(7), 'big')", "np.random.default_rng().random()")  # fmt: skip


def values(jit: Callable[[Any], Any], setup: str, expression: str, changes: str, calls: int) -> list[Any]:
    """Return the results of calls with a change before the fourth one, the seventh one and so on."""
    names: dict[str, Any] = {"s": SimpleNamespace(), "__name__": "__main__"}
    torch.manual_seed(7)
    exec(HEAD + setup + f"\ndef f(x): return {expression}", names)
    function = jit(names["f"])
    found = []
    try:
        for number, change in enumerate(["", *changes.split("|")]):
            exec(change, names)
            found += [function(given(number)).tolist() for _ in range(calls)]
    finally:
        for handle in filter(None, [getattr(names["s"], "h", None)]):
            handle.remove()  # a hook of all modules
    return found


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HCQ_ROW", "HCQ_OTHER_ROW"):
        monkeypatch.setenv(name, "0")
        monkeypatch.delenv(name)


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("row", ROWS)
def test_a_change_of_what_was_read_is_seen(row: str, gradients: bool, monkeypatch: pytest.MonkeyPatch):  # noqa: FBT001
    with torch.set_grad_enabled(gradients):
        wanted = values(lambda f: f, *ROWS[row], 3)
        for name in ("HCQ_ROW", "HCQ_OTHER_ROW"):
            monkeypatch.delenv(name, raising=False)
        assert values(torch.compile, *ROWS[row], 3) == wanted
        changed = [a != b for a, b in zip(wanted[2::3], wanted[5::3], strict=False)]
        monkeypatch.delenv("HCQ_OTHER_ROW", raising=False)
        assert any(changed), "the row changes nothing"
        try:
            assert values(TinyJit, *ROWS[row], 3) == wanted
        except UsageError:
            return


@pytest.mark.parametrize("row", STEPS)
def test_what_a_call_itself_changes_is_seen(row: str):
    wanted = values(lambda f: f, *STEPS[row], "", 3)
    assert values(torch.compile, *STEPS[row], "", 3) == wanted


@pytest.mark.parametrize("drawn", DRAWN)
def test_numbers_of_the_machine_are_drawn_in_each_call(drawn: str):
    every = values(torch.compile, "pass", f"x.double() + {drawn}", "", 4)
    assert len({tuple(row) for row in every}) == 8


def test_containers_of_arguments_have_an_order():
    def weighted(d: dict[str, Any]) -> Any:
        return sum(v * (i + 1) for i, v in enumerate(d.values()))

    def numbers(d: dict[str, int]) -> Any:
        return Tensor([1.0]) * next(iter(d.values()))

    compiled, digits, strict = torch.compile(weighted), torch.compile(numbers), TinyJit(weighted)
    a, b = Tensor([1.0]), Tensor([3.0])
    for turned in (False, False, False, True, True, True, False):
        d = {"b": b, "a": a} if turned else {"a": a, "b": b}
        n = {"b": 2, "a": 1} if turned else {"a": 1, "b": 2}
        assert (compiled(d).item(), digits(n).item()) == (weighted(d).item(), numbers(n).item())
        if turned:
            with pytest.raises(UsageError, match="it was called with"):
                strict(d)
        else:
            assert strict(d).item() == weighted(d).item()


def test_names_of_arguments_have_an_order_only_where_it_is_seen():
    def plain(x: Tensor, y: Tensor) -> Any:
        return x - y

    def seen(**names: Tensor) -> Any:
        return next(iter(names.values())) * 2

    a, b = Tensor([1.0]), Tensor([3.0])
    f, g = torch.compile(plain), torch.compile(seen)
    strict = TinyJit(plain)
    for turned in (False, False, False, True, True, True):
        names = {"y": b, "x": a} if turned else {"x": a, "y": b}
        assert (f(**names).item(), strict(**names).item()) == (-2.0, -2.0)
        assert g(**names).item() == seen(**names).item()
    assert f.recompilations == []


@pytest.mark.parametrize("second", [slice(3, 6), slice(1, 4), slice(0, 3)])
def test_compiled_writes_to_arguments_that_are_views_of_one_tensor(second: slice):
    def step(x: Tensor, y: Tensor) -> Any:
        x.add_(1)
        return x + y

    def run(function: Any) -> Any:
        a = torch.arange(6.0)
        found = [function(a[:3], a[second]).tolist() for _ in range(4)]
        found += [function(a[:3], torch.ones(3)).tolist() for _ in range(4)]
        return found, a.tolist()

    assert run(torch.compile(step)) == run(step)
