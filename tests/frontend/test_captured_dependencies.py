"""What captured functions do outside: tensors that they keep, what they change, results that share elements.

Each row is a function of x that is called six times. A compiled one has the values of the function itself; a
`TinyJit` has them, or raises the `UsageError` of the row.

Not here: what functions read (`test_captured_state`), modes (`test_modes_of_captures`), outside tensors that
are assigned to (`test_captured_outside`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import frontend as torch
from frontend import Tensor, TinyJit
from hcq.errors import UsageError
from tests.frontend.captured_rows import STEP, TRAINED, given, judge, values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CALLS = 6
KEPT = """
def make():
 w, rows = None, []
 def f(x):
  nonlocal w
  w = x * 2
  return x + 1
 def keep(t):
  rows.append(t)
  return rows
 return f, keep, lambda: w
f, keep, s.seen = make()
"""
STEPS: dict[str, tuple[str, str, str | None]] = {
    "seeded generator": ("s.r = random.Random(0)", "x + s.r.random()",
        "draws random numbers on the host, which a replay would repeat\nhint: use Tensor.rand"),
    "generator of NumPy": ("s.r = np.random.default_rng(0)", "x + s.r.random()",
        "draws random numbers on the host"),
    "old generator of NumPy": ("s.r = np.random.RandomState(0)", "x + float(s.r.rand())",
        "draws random numbers on the host"),
    "generator of the module": ("random.seed(0)", "x + random.random()", "draws random numbers on the host"),
    "generator of NumPy's module": ("np.random.seed(0)", "x + float(np.random.rand())",
        "draws random numbers on the host"),
    "new generator": ("s.n = 0", "x * 0 + (np.random.default_rng().random() < 2)", ""),
    "generator function": ("s.i = count()", "x + next(s.i)",
        "reads the iterator `s.i`, which replays would not advance"),
    "count": ("s.i = itertools.count()", "x + next(s.i)",
        "reads the iterator `s.i`, which replays would not advance"),
    "chain": ("s.i = itertools.chain(range(9))", "x + next(s.i)",
        "reads the iterator `s.i`, which replays would not advance"),
    "iterator of an array": ("s.i = np.nditer(np.arange(9))", "x + int(next(s.i))",
        "reads the iterator `s.i`, which replays would not advance"),
    "lines": ("s.i = io.StringIO('1\\n2\\n3\\n4\\n5\\n6\\n7\\n')", "x + int(s.i.readline())",
        "reads the iterator `s.i`, which replays would not advance"),
    "popped": ("s.l = list(range(9))", "x + s.l.pop()",
        "reads the number of elements of `s.l` and changes it itself, from 8 to 7"),
    "first out": ("s.l = collections.deque(range(9))", "x + s.l.popleft()",
        "reads the number of elements of `s.l` and changes it itself, from 8 to 7"),
    "queue of threads": ("s.q = queue.Queue(); [s.q.put(i) for i in range(9)]", "x + s.q.get()", None),
    "variable of a context": ("s.v = contextvars.ContextVar('v', default=0)",
        "(s.v.set(s.v.get() + 1), x + s.v.get())[1]", None),
    "environment": ("os.environ['HCQ_ROW'] = '1'",
        "(os.environ.update(HCQ_ROW=os.environ['HCQ_ROW'] + '0'), x + int(os.environ['HCQ_ROW']))[1]",
        "reads an element of `os.environ` and changes it itself, from b'10' to b'100'"),
    "bytes": ("s.a = bytearray(1)", "(s.a.__setitem__(0, s.a[0] + 1), x + s.a[0])[1]",
        "reads an element of `s.a` and changes it itself, from b'\\x01' to b'\\x02'"),
    "kept in an attribute": ("s.seen = lambda: s.y", "s.y = x * 2; return x + 1",
        "is kept outside, in `s.y`"),
    "kept in a list": ("s.l = []; s.seen = lambda: s.l", "y = x * 2; s.l.append(y); return x + 1",
        "is kept outside, in `s.l[1]`"),
    "kept in a dictionary": ("s.d = {}; s.seen = lambda: s.d['y']", "s.d['y'] = x * 2; return x + 1",
        "is kept outside, in `s.d['y']`"),
    "kept and detached": ("s.seen = lambda: s.y", "loss = (x * 2).sum(); s.y = loss.detach(); return loss",
        "is kept outside, in `s.y`"),
    "kept and used": ("s.l = []; s.seen = lambda: s.l", "y = x * 2; s.l.append(y); return y + 1",
        "is kept outside, in `s.l[1]`"),
    "kept and returned": ("s.seen = lambda: s.y", "s.y = x * 2; return s.y", "is kept outside, in `s.y`"),
    "kept argument": ("s.seen = lambda: s.y", "s.y = x; return x + 1", "is kept outside, in `s.y`"),
    "kept without the argument": ("s.w = torch.ones(2); s.seen = lambda: s.y", "s.y = s.w * 3; return x + 1",
        "is kept outside, in `s.y`"),
    "kept in a new list": ("s.w = torch.ones(2); s.seen = lambda: s.l[0][:1]",
        "s.l = [(s.w * 3, 'three')]; return x + 1", "is kept outside, in `s.l[0][0]`"),
    "kept in a global": ("y = None; s.seen = lambda: y", "global y; y = x * 2; return x + 1",
        "is kept outside, in `y`"),
    "kept in a closure": (KEPT, "=f", "is kept outside, in `w`"),
    "kept by a layer": ("s.l = Keeper(); s.seen = lambda: s.l.hidden", "=s.l",
        "is kept outside, in `hidden`"),
    "kept in another closure": (KEPT + "s.seen = None", "x + len(keep((x * 2).sum())) * 0",
        "is kept outside, in `rows[1]`"),
    "moved by the function": ("s.w = torch.ones(2)", "s.w = s.w + 1; return x * s.w",
        "is kept outside, in `s.w`"),
    "advanced by the function": ("s.c, s.p = torch.zeros(8, 2), [0]",
        "s.c[s.p[0]] = x; s.p[0] += 1; return s.c.sum(1)",
        "reads `s.p[0]` and changes it itself, from 1 to 2"),
    "step of gradients from outside": (TRAINED + "s.before = lambda: (s.w * 2).sum().backward()",
        "s.o.step(); return x + 1", "was a tensor when f was captured"),
    "gradient read from outside": (
        TRAINED + "s.before = lambda: (setattr(s.w, 'grad', None), (s.w * 2).sum().backward())",
        "x * s.w.grad", "set .grad to None"),
    "schedule": (TRAINED + "s.r = torch.optim.lr_scheduler.StepLR(s.o, 1, 0.5)",
        STEP.replace("return", "s.r.step(); return"), "StepLR.step() inside a captured function"),
    "equal arguments with other tensors": ("s.args = lambda x: (x, State('a', x))", "x * more[0].w",
        "was captured with arguments"),
    "calls": ("n, s.n, s.l = 0, 0, [0]",
        "global n; n += 1; s.n += 1; s.l[0] += 1; s.l.append(1); return x * 2", ""),
    "state of the first call": ("s.w = None",
        "if s.w is None: s.w = torch.zeros(2)\n s.w += x\n return s.w * 1", ""),
    "temporaries of an object": ("s.c = Call", "s.c(x).run()", ""),
    "cycle of temporaries": ("pass", "o = N(y=x * 2); o.itself = o; return o.y + 1", ""),
    "gradients that are removed": (TRAINED + "s.before = lambda: (s.w * 3).sum().backward()",
        "s.w.grad = None; (s.w * x).sum().backward(); g, s.w.grad = s.w.grad, None; return g", ""),
    "method of each instance": ("""
class Net(Stepped): step = jit(Stepped.step)
s.a, s.b = Net(), Net()
s.b.w = s.b.w * 3""", "==lambda x: s.a.step(x) * 10 + s.b.step(x)", ""),
    "draws of tensors": ("torch.manual_seed(5)", "x + torch.rand(2)", ""),
}  # fmt: skip
"""Name -> (setup, function that also changes what it reads, what `TinyJit` says; None: nothing)."""
DRAWN = ("secrets.randbelow(1 << 60)", "uuid.uuid4().int % (1 << 60)", "random.SystemRandom().random()",
         "int.from_bytes(os.urandom(7), 'big')", "np.random.default_rng().random()")  # fmt: skip


@pytest.mark.parametrize("row", STEPS)
def test_what_a_call_itself_changes_or_keeps_is_seen(row: str, monkeypatch: pytest.MonkeyPatch):
    setup, function, says = STEPS[row]
    judge(setup, function, "pass", says, monkeypatch)


@pytest.mark.parametrize("drawn", DRAWN)
def test_numbers_of_the_machine_are_drawn_in_each_call(drawn: str):
    every = values(torch.compile, "pass", f"x.double() + {drawn}", "pass", 4)
    assert len({tuple(row) for row, _ in every}) == 8


RESULTS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "one tensor": lambda _, y: [y, y],
    "a view": lambda _, y: (y, y[:1]),
    "a view first": lambda _, y: (y[:1], y),
    "a detached one": lambda _, y: (y, y.detach()),
    "a view of a view": lambda _, y: (y, y.reshape(1, 2)[0][1:]),
    "views that overlap": lambda _, y: (y[:2], y[1:]),
    "views that are computed": lambda _, y: (y[:2].realize(), y[:1]),
    "views apart": lambda _, y: (y[:1], y[1:]),
    "an argument and its view": lambda x, _: (x, x[1:]),
    "two of three": lambda _, y: {"a": y, "b": [y + 1, y[1:]]},
    "none": lambda x, y: (x * 2, y),
}


def made(name: str) -> Callable[[Tensor], Any]:
    return lambda x: RESULTS[name](x, x * 2)


@pytest.mark.parametrize("name", RESULTS)
def test_results_share_elements_in_replays_as_without_capture(name: str) -> None:
    def leaves(value: Any) -> list[Tensor]:
        parts = value.values() if isinstance(value, dict) else value
        return [value] if isinstance(value, Tensor) else [t for v in parts for t in leaves(v)]

    def play(function: Any) -> list[Any]:
        seen: list[Any] = []
        for k in range(CALLS):
            x = given(k)
            results = leaves(function(x))
            for t in results:
                t.add_(1)
                seen.append([r.tolist() for r in (*results, x)])
            results[-1].assign(results[-1] * 3).realize()
            seen.append([r.tolist() for r in results])
        return seen

    assert play(TinyJit(made(name))) == play(made(name))


def test_results_that_share_elements_cannot_be_saved(tmp_path: Path) -> None:
    f, same = TinyJit(made("a view")), TinyJit(made("one tensor"))
    for k in range(2):
        f(given(k))
        same(given(k))
    with pytest.raises(UsageError, match=r"results \[0, 1\] share elements(.|\n)*clone"):
        f.save(tmp_path / "f.hcq")
    same.save(tmp_path / "same.hcq")
    a, b = TinyJit.load(tmp_path / "same.hcq")(given(3))
    assert a is b


def test_backward_through_a_result_names_the_capture() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    f = TinyJit(lambda x: {"loss": (w * x).sum(), "other": x + 1})
    for k in range(CALLS):
        loss = f(given(k))["loss"]
        if k:
            with pytest.raises(UsageError, match=r"result of <TinyJit <lambda>>(.|\n)*inside the function"):
                loss.backward()
        else:
            loss.backward()
            w.grad = None
