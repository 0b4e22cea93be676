"""What functions read from outside, as rows: setup, function, change. No capture returns an old value.

Each row is a function of x that reads `s`, called three times before and three times after each change. A
compiled one has the values of the function itself; a `TinyJit` has them, or raises the `UsageError` of the
row. What cannot be followed is a reason to run plainly.

Not here: what a call itself changes (`test_captured_dependencies`), modes (`test_modes_of_captures`), outside
tensors that are assigned to (`test_captured_outside`).
"""

from __future__ import annotations

from typing import Any

import pytest

import frontend as torch
from frontend import Tensor, TinyJit
from hcq.errors import UsageError
from tests.frontend.captured_rows import STEP, TRAINED, judge, values

GROWS = "s.o.values[0] = 7; s.o.values.append(3)"
CLOSURE = """
def make():
 w = {}
{} def f(x): return x * w
 def change():
  nonlocal w
  w = w + 1
 return f, change
f, change = make()
"""
ROWS: dict[str, tuple[str, str, str, str]] = {
    "sum of an array": ("s.a = np.arange(2.0)", "x + s.a.sum()", "s.a += 1",
        "an element of `s.a` was (0.0, 1.0)"),
    "elements of an array": ("s.a = np.arange(2.0)", "x * s.a.tolist()[1]", "s.a += 1",
        "an element of `s.a` was (0.0, 1.0)"),
    "function of an array": ("s.a = np.arange(2.0)", "x + float(np.mean(s.a))", "s.a += 1",
        "an element of `s.a` was (0.0, 1.0)"),
    "array as a tensor": ("s.a = np.arange(2.0)", "x + torch.tensor(s.a)", "s.a += 1",
        "host data was made into a tensor"),
    "form of an array": ("s.a = np.arange(2.0)", "x * s.a.shape[0]", "s.a = np.arange(3.0)",
        "`s.a` was a ndarray"),
    "large array": ("s.a = np.zeros(90000)", "x + float(s.a[-1])", "s.a += 1",
        "an array of more than 65536 bytes"),
    "typed array": ("s.a = array.array('d', [1.0])", "x + s.a[0]", "s.a[0] += 1",
        "an element of `s.a` was b'\\x00\\x00\\x00\\x00\\x00\\x00\\xf0?'"),
    "bytes": ("s.a = bytearray(3)", "x + s.a[0]", "s.a[0] += 1",
        "an element of `s.a` was b'\\x00\\x00\\x00'"),
    "view of bytes": ("s.a = memoryview(bytearray(3))", "x + s.a[0]", "s.a[0] += 1",
        "an element of `s.a` was b'\\x00\\x00\\x00'"),
    "number of C": ("s.a = ctypes.c_int(1)", "x + s.a.value", "s.a.value += 1",
        "an element of `s.a` was b'\\x01\\x00\\x00\\x00'"),
    "structure of C": ("s.a = (ctypes.c_int * 2)(1, 2)", "x + s.a[1]", "s.a[1] += 1",
        "an element of `s.a` was b'\\x01\\x00\\x00\\x00\\x02\\x00\\x00\\x00'"),
    "length of a list": ("s.l = [1]", "x * len(s.l)", "s.l.append(1)",
        "the number of elements of `s.l` was 1"),
    "member of a list": ("s.l = [1]", "x * (3 in s.l)", "s.l.append(3)",
        "the number of elements of `s.l` was 1"),
    "count in a list": ("s.l = [1, 1]", "x * s.l.count(1)", "s.l[0] = 5", "an element of `s.l` was 1"),
    "greatest of a list": ("s.l = [1, 2]", "x * max(s.l, key=lambda v: -v)", "s.l[0] = 5",
        "an element of `s.l` was 1"),
    "list in a tuple": ("s.l = ([1],)", "x * s.l[0][0]", "s.l[0][0] = 4", "`s.l[0][0]` was 1"),
    "objects in a list": ("s.l = [N(c=1), N(c=2)]", "x * sum(v.c for v in s.l)", "s.l[1].c = 9",
        "`s.l[1].c` was 2"),
    "set": ("s.l = {1}", "x * sum(s.l)", "s.l.add(4)", "the number of elements of `s.l` was 1"),
    "queue": ("s.l = collections.deque([1, 2])", "x * s.l[0]", "s.l.rotate()", "an element of `s.l` was 1"),
    "new key": ("s.d = {}", "x * s.d.get('a', 2)", "s.d['a'] = 1", "the number of elements of `s.d` was 0"),
    "key by a variable": ("s.d, s.k = {'a': 1, 'b': 2}, 'a'", "x * s.d[s.k]", "s.k = 'b'; s.d['b'] = 3",
        "`s.k` was 'a'"),
    "other key": ("s.d = {'a': 1}", "x * ord([*s.d][0])", "renamed(s.d)", "an element of `s.d` was 'a'"),
    "order of keys": ("s.d = {'a': 1, 'b': 1}", "x * ord([*s.d][0])", "reordered(s.d)",
        "an element of `s.d` was 'a'"),
    "order of values": ("s.d = {'a': 1, 'b': 2}", "x * [*s.d.values()][0]", "reordered(s.d)",
        "an element of `s.d` was 1"),
    "objects in a dictionary": ("s.d = {'a': N(c=1)}", "x * sum(v.c for v in s.d.values())",
        "s.d['a'].c = 9", "`s.d['a'].c` was 1"),
    "dictionary in a dictionary": ("s.d = {'a': {'b': [1, 2]}}", "x * s.d['a']['b'][1]",
        "s.d['a']['b'][1] = 7", "`s.d['a']['b'][1]` was 2"),
    "counter": ("s.d = collections.Counter('a')", "x * s.d['a']", "s.d.update('a')", "`s.d['a']` was 1"),
    "attribute by name": ("s.c, s.e, s.name = 1, 5, 'c'", "x * getattr(s, s.name)", "s.name = 'e'; s.e = 6",
        "`s.name` was 'c'"),
    "whether there is an attribute": ("pass", "x * (2 if hasattr(s, 'g') else 3)", "s.g = 1",
        "the number of elements of `s` was 0"),
    "all attributes": ("s.c, s.e = 1, 5", "x * sum(v for v in vars(s).values() if type(v) is int)",
        "s.e = 6", "an element of `s` was 5"),
    "attribute by name in a method": ("s.o = Own()", "x * s.o.by_name('n')", "s.o.n = 5", "`s.o.n` was 2"),
    "slot": ("s.o = Slots()", "x * s.o.n", "s.o.n += 1", "`s.o.n` was 1"),
    "descriptor": ("s.o = Own()", "x * s.o.z", "s.o.z = 5", "the number of elements of `s.o.__dict__` was 2"),
    "property": ("s.o = Own()", "x * s.o.p", "s.o.n = 5", "`s.o.n` was 2"),
    "other property": ("s.o = Own()", "x * s.o.p", "Own.p = property(lambda self: 9)",
        "`s.o.p` was a property"),
    "attribute of a class": ("s.o = Own()", "x * s.o.k", "Base.k = 6|Own.k = 5|s.o.k = 7", "`s.o.k` was 1"),
    "attribute by its class": ("s.o = Own()", "x * Own.k", "Own.k = 5", "`Own.k` was 1"),
    "class method": ("s.o = Own()", "s.o.c(x)", "Own.k = 5", "`s.o.k` was 1"),
    "class method by its class": ("s.o = Own()", "Own.c(x)", "Own.k = 5", "`Own.k` was 1"),
    "other method": ("s.o = Own()", "s.o.m(x)",
        "Own.m = lambda self, x: x * 8|s.o.m = lambda x: x * 9|del s.o.m", "`s.o.m` was a function"),
    "other method of a base": ("s.o = Own()", "s.o.m(x)", "Base.m = lambda self, x: x * 8",
        "`s.o.m` was a function"),
    "other static method": ("s.o = Own()", "s.o.s(x)", "Own.s = staticmethod(lambda x: x * 9)",
        "`s.o.s` was a function"),
    "other function": ("s.f = torch.exp", "s.f(x)", "s.f = torch.sin", "`s.f` was a function"),
    "partial function": ("s.f = functools.partial(torch.mul, other=3)", "s.f(x)",
        "s.f = functools.partial(torch.mul, other=4)", "`s.f` was a partial"),
    "class of a value": ("s.v = 1", "x * 2 if isinstance(s.v, int) else x * 3", "s.v = 'a'", "`s.v` was 1"),
    "iteration": ("s.o = Own()", "x * sum(s.o)", GROWS, "`s.o.values[0]` was 1"),
    "length": ("s.o = Own()", "x * len(s.o)", GROWS, "`s.o.values[0]` was 1"),
    "item": ("s.o = Own()", "x * s.o[0]", GROWS, "`s.o.values[0]` was 1"),
    "member": ("s.o = Own()", "x * (3 in s.o)", GROWS, "`s.o.values[0]` was 1"),
    "truth": ("s.o = Own()", "x * 2 if s.o else x * 3", GROWS, "`s.o.values[0]` was 1"),
    "number": ("s.o = Own()", "x * float(s.o)", GROWS, "`s.o.values[0]` was 1"),
    "environment": ("os.environ['HCQ_ROW'] = '1'", "x * int(os.environ['HCQ_ROW'])",
        "os.environ['HCQ_ROW'] = '2'", "an element of `os.environ` was b'1'"),
    "variable of the environment": ("os.environ.pop('HCQ_OTHER_ROW', None)",
        "x * int(os.getenv('HCQ_OTHER_ROW', '1'))",
        "os.environ['HCQ_OTHER_ROW'] = '2'", "`os.environ` was"),
    "module": ("s.m = types.ModuleType('m'); s.m.k = 2", "x * s.m.k", "s.m.k = 7", "`s.m.k` was 2"),
    "written tensor": ("s.t = torch.ones(2)", "x * s.t",
        "s.t.add_(1)|s.t = s.t + 1|s.t.data = torch.zeros(2)", "`s.t` was another tensor"),
    "view of a written tensor": ("s.t = torch.ones(4); s.v = s.t[:2]", "x * s.v", "s.t.add_(1)|s.v.mul_(3)",
        ""),
    "hook": ("s.l = nn.Linear(2, 2)", "s.l(x)", "s.h = s.l.register_forward_hook(hook)|s.h.remove()",
        "hooks"),
    "removed hook": ("s.l = nn.Sequential(nn.Linear(2, 2)); s.h = s.l[0].register_forward_hook(hook)",
        "s.l(x)", "s.h.remove()", "the number of elements of `s.l[0].hooks['after']` was 1"),
    "hook that reads": ("s.l = nn.Linear(2, 2); s.k = 2; s.l.register_forward_hook(lambda m, i, o: o * s.k)",
        "s.l(x)", "s.k = 3", "`s.k` was 2"),
    "hook of all modules": ("s.l = nn.Linear(2, 2)", "s.l(x)",
        "s.h = nn.modules.module.register_module_forward_hook(hook)|s.h.remove()",
        "hooks"),
    "mode of a layer": ("s.l = nn.Dropout(0.0)", "s.l(x) * (2 if s.l.training else 3)",
        "s.l.eval()|s.l.train()", "training of Dropout was True"),
    "other activation": ("s.l = Net()", "s.l(x)", "s.l.act = torch.tanh", "`s.l.act` was a function"),
    "other helper": ("s.l = Net()", "s.l(x)", "s.l.helper = lambda x: x * 50", "`s.l.helper` was not there"),
    "other layer": ("s.l = Net()", "s.l(x)", "s.l.inner = nn.Linear(2, 2, bias=False)",
        "`s.l.inner` was a Linear"),
    "no bias": ("s.l = Net()", "s.l(x)", "s.l.inner.bias = None", "`s.l.inner.bias` was another tensor"),
    "other forward": ("s.l = Net()", "s.l(x)", "s.l.inner.forward = lambda x: x * 3",
        "`s.l.inner.forward` was not there"),
    "number of a layer": ("s.l = Net()", "s.l(x)", "s.l.k = 3|s.l.names['k'] = 4", "`s.l.k` was 2"),
    "layers": ("s.l = nn.Sequential(nn.Linear(2, 2))", "s.l(x)", "s.l.append(nn.Tanh())|s.l[0] = nn.ReLU()",
        "the number of elements of `s.l` was 1"),
    "attribute": ("s.k = 2.0", "x * s.k", "s.k = 3.0",
        "`s.k` was 2.0 when <TinyJit f> was captured, and is 3.0 now"),
    "number of another kind": ("n = 2", "x.double().cast('int32') * n", "n = 2.0",
        "`n` was 2 when <TinyJit f> was captured, and is 2.0 now"),
    "global": ("w = torch.ones(2)", "x * w", "w = w + 1",
        "`w` was another tensor when <TinyJit f> was captured"),
    "nothing": ("w = None", "x if w is None else x * w", "w = 3.0",
        "`w` was None when <TinyJit f> was captured, and is 3.0"),
    "closure": (CLOSURE.format("torch.ones(2)", ""), "=f", "change()",
        "`w` was another tensor when <TinyJit f> was captured"),
    "number in a closure": (CLOSURE.format("2", ""), "=f", "change()",
        "`w` was 2 when <TinyJit f> was captured, and is 3 now"),
    "closure under a decorator": (CLOSURE.format("torch.ones(2)", " @Tensor.no_grad()\n"),
        "=f", "change()", "`w` was another tensor"),
    "tensor in a dictionary": ("s.d = {'w': torch.ones(2)}", "x * s.d['w']", "s.d['w'] = s.d['w'] + 1",
        "`s.d['w']` was another tensor"),
    "tensor by a variable": ("s.d, key = {'w': torch.ones(2)}, 'w'", "x * s.d[key]",
        "s.d['w'] = s.d['w'] + 1", "an element of `s.d` was another tensor"),
    "attribute of a local": ("s.o = N(k=2.0)", "o = s.o; return x * o.k", "s.o.k = 3.0", "`s.o.k` was 2.0"),
    "attribute by getattr": ("s.w = torch.ones(2)", "x * getattr(s, 'w')", "s.w = s.w + 1",
        "`s.w` was another tensor"),
    "attribute of a layer that is not there": ("s.l = Scaled()", "=s.l", "s.l.scale = 3.0",
        "`scale` was not there"),
    "wrapped object": ("s.o = Wrapped(N(k=2.0))", "x * s.o.k", "s.o.inner.k = 3.0", "`s.o.inner.k` was 2.0"),
    "weight": ("s.l = nn.Linear(2, 1, bias=False)", "s.l(x) + 1", "s.l.weight = nn.Parameter([[3.0, 1.0]])",
        "`s.l.weight` was another tensor"),
    "bias in a model": ("s.l = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))", "s.l(x)",
        "s.l[2].bias = torch.tensor([3.0, 1.0])", "`s.l[2].bias` was another tensor"),
    "layer of a model": ("s.l = nn.Sequential(nn.Linear(2, 2), nn.ReLU())", "s.l(x)", "s.l[1] = nn.Tanh()",
        "an element of `s.l` was a ReLU when <TinyJit f> was captured, and is a Tanh"),
    "layers in turn": ("s.l = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])",
        "for l in s.l: x = x @ l.weight.T + l.bias\n return x", "s.l[1].bias = torch.tensor([3.0, 1.0])",
        "`s.l[1].bias` was another tensor"),
    "setting of a layer": ("s.l = nn.LeakyReLU(0.5); s.k = next(n for n, v in vars(s.l).items() if v == 0.5)",
        "s.l(x - 3)", "setattr(s.l, s.k, 0.25)", "was 0.5"),
    "running mean": ("s.l = nn.BatchNorm1d(2).eval()", "s.l(x.reshape(1, 2))",
        "s.l.running_mean = torch.tensor([3.0, 1.0])", "`s.l.running_mean` was another tensor"),
    "method that reads": ("s.o = Stepped()", "=s.o.step", "s.o.w = s.o.w + 1",
        "`self.w` was another tensor when <TinyJit step> was captured"),
    "method of a base that reads": ("s.o = Deeper()", "=s.o.step", "s.o.w = s.o.w + 1",
        "`self.w` was another tensor"),
    "captured method": ("class Net(Stepped): step = jit(Stepped.step)\ns.o = Net()", "=s.o.step",
        "s.o.w = s.o.w + 1", "`self.w` was another tensor"),
    "captured inside": ("s.w = torch.ones(2); inner = jit(lambda x: x * s.w)", "inner(x) + 1",
        "s.w = s.w + 1", "`s.w` was another tensor"),
    "comprehension": ("s.l = [N(w=2.0), N(w=3.0)]",
        "parts = [x * row.w for row in s.l]; return parts[0] + parts[1]", "s.l[1].w = 4.0",
        "`s.l[1].w` was 3.0"),
    "object as an argument": ("s.o = N(w=torch.ones(2)); s.args = lambda x: (x, s.o)",
        "o, = more; return x * o.w", "s.o.w = s.o.w + 1", "`an argument.w` was another tensor"),
    "object among arguments": ("s.o = N(w=torch.ones(2)); s.args = lambda x: (x, s.o)", "x * more[0].w",
        "s.o.w = s.o.w + 1", "`an argument.w` was another tensor"),
    "object in a list of arguments": ("s.o = N(k=2.0); s.args = lambda x: (x, {'l': [s.o]})",
        "x * more[0]['l'][0].k", "s.o.k = 3.0", "`an argument.k` was 2.0"),
    "position in a cache": ("s.c, s.p = torch.zeros(8, 2), [0]", "s.c[s.p[0]] = x; return s.c.sum(1)",
        "s.p[0] += 1", "`s.p[0]` was 0 when <TinyJit f> was captured, and is 1"),
    "position of an array": ("s.c, s.p = torch.zeros(8, 2), np.zeros(1, np.int64)",
        "s.c[int(s.p[0])] = x; return s.c.sum(1)", "s.p[0] += 1",
        "an element of `s.p` was (0,) when <TinyJit f> was captured, and is (1,)"),
    "gradient from outside": (TRAINED, STEP, "(s.w * 3).sum().backward()",
        "was None when f was captured, and is a tensor now"),
    "moment": (TRAINED, STEP, "s.o.b[0] = torch.zeros(2)", "an element of `s.o.b` was another tensor"),
    "gradient wanted later": (TRAINED, STEP, "s.other.requires_grad = True",
        "was False when f was captured, and is True now"),
    "learning rate": (TRAINED, STEP, "s.o.lr = 0.05", ""),
    "names that are not read": ("s.w, s.n = torch.ones(2), []; n = 0", "x * s.w", "n += 1; s.n.append(n)",
        ""),
    "number beside a tensor": ("s.o = State('a', torch.ones(2))", "s.o.w.assign(s.o.w + x); return s.o.w * 1",
        "s.o.name = 'b'", ""),
    "equal values": ("s.k, s.name = 1000.5, 'a b'", "x * s.k if s.name == 'a b' else x",
        "s.k = float('1000.5'); s.name = str(b'a b', 'ascii')", ""),
    "tensors assigned in place": ("s.l = nn.Linear(2, 2)", "=s.l",
        "nn.state.load_state_dict(s.l, {'weight': torch.ones(2, 2), 'bias': torch.ones(2)})", ""),
    "capture anew": ("s.w = torch.ones(2)", "x * s.w", "s.w = s.w * 3; getattr(function, 'reset', list)()",
        ""),
}  # fmt: skip
"""Name -> (setup, function, changes divided by "|", what `TinyJit` says; "": it has the values).

A function is an expression, statements, or a name after "=", after "==" of what is captured already.
"""


@pytest.mark.parametrize(
    ("row", "gradients"), [(n, g) for g in (True, False) for n in ROWS if g or ROWS[n][0] is not TRAINED]
)
def test_a_change_of_what_was_read_is_seen(row: str, gradients: bool, monkeypatch: pytest.MonkeyPatch):  # noqa: FBT001
    setup, function, changes, says = ROWS[row]
    with torch.set_grad_enabled(gradients):
        judge(*ROWS[row], monkeypatch)
        if says and gradients:
            unchanged = "|".join("pass" for _ in changes.split("|"))
            both = [values(lambda f: f, setup, function, every, 3) for every in (unchanged, changes)]
            assert repr(both[0]) != repr(both[1]), "the row changes nothing"


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
