"""Expressions whose answers are recorded, by family: as PyTorch users write them.

`torch.` and `F.` stand for the methods of `Tensor`, names for the tensors of `inputs`.

Next: `inputs`, `compare`.
"""

from __future__ import annotations

from typing import Final

SURPRISES: Final = """
torch.cat([a, a], 1)
torch.cat([e, e], 0)
torch.stack([b, b], 1)
+a
+m
a.take(v)
i.take(k)
odd.take(v - 3)
one.take(torch.tensor([0]))
h * torch.tensor(0.5)
w + w
n8 + 300
n8 * s
torch.tensor([70000.0, -1e9], dtype=dtypes.float16)
torch.full((2, 2), fill_value=3)
bool(one > 2)
bool(b > 2)
bool(e)
2.0 in b
7 in j
f"{s:.3f}"
f"{b:.3f}"
[10, 20, 30, 40][torch.tensor(2)]
list(range(torch.tensor(3)))
s.sum(0)
s.sum(-1)
s.sum(1)
s.mean(0, keepdim=True)
s.softmax(-1)
s.log_softmax(0)
F.softmin(s, -1)
s.argmax(0)
s.argmin(0)
s.max(0)
s.min(-1)
s.sort(0)
s.argsort(0)
s.flip(0)
s.transpose(0, -1)
s.cumsum(0)
s.cumsum(1)
s.unbind(0)
s.amax(0)
s.var(0, correction=0)
F.softmin(a, 1)
F.softmin(nc, 0)
a[m]
a[w]
a[:, torch.tensor([True, False, True, True])]
a[w, 1]
a[w, :2]
a[..., torch.tensor([False, False, True, True])]
nc[nc > 0]
neg[neg > 1]
part[part > 0]
e[e > 0]
a[torch.tensor([True, False])]
a[[True, False, True]]
a.masked_select(m)
a.masked_select(torch.tensor([True, False, True, True]))
b.masked_select(m)
i.masked_select(i > 1)
a.masked_select(a)
m.nonzero()
s.nonzero()
e.nonzero()
i.nonzero(as_tuple=True)
a[7]
a[0, 9]
a[0, 0, 0]
a.__setitem__(slice(0, 1), j) or a
i.__setitem__(0, b) or i
i.__setitem__(slice(None, None, 2), 2.75) or i
n8.__setitem__(0, 300) or n8
a.__setitem__(m, 7) or a
a.__setitem__(m, torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])) or a
a.__setitem__(m, b) or a
a.__setitem__(w, b) or a
a.__setitem__((w, 2), 9.0) or a
odd.__setitem__(odd > 0, 0) or odd
"""

EXPRESSIONS: Final = [line for text in (SURPRISES,) for line in text.strip().splitlines()]
