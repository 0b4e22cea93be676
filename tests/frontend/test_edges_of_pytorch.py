"""Values at edges that PyTorch's own tests of `torch` and `torch.nn` name, as PyTorch 2.13 gives them."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest

import frontend as torch
from frontend import nn
from frontend.nn import functional as F  # noqa: N812 - PyTorch's name
from hcq.errors import UsageError

INF = math.inf


def seeded(dtype: Any) -> list[float]:
    x = torch.ones(3, requires_grad=True)
    (x.to(dtype) * 2).backward(torch.ones(3))
    assert x.grad is not None
    return x.grad.tolist()


def losses(frames: list[int], targets: list[int]) -> list[float]:
    x = torch.randn(2, 2, 5).log_softmax(2)
    return F.ctc_loss(
        x, torch.ones(2, 2, dtype=torch.int), torch.tensor(frames), torch.tensor(targets), reduction="none"
    ).tolist()


def inverse(dtype: Any) -> bool:
    small = [1e-30, -1e-20, 1e-8, -0.0]
    found = torch.tensor(small, dtype=dtype).erfinv().tolist()
    wanted = [x * math.sqrt(math.pi) / 2 for x in small]
    near = all(abs(f - w) <= 1e-6 * abs(w) for f, w in zip(found, wanted, strict=True))
    return near and math.copysign(1, found[3]) == -1


def norms(dtype: Any) -> set[Any]:
    x, w, one = torch.ones(2, 4, 4, dtype=dtype), torch.ones(4), torch.zeros(4)
    every = [F.layer_norm(x, (4,), w, w), F.rms_norm(x, (4,), w), F.group_norm(x, 2, w, w)]
    every += [F.batch_norm(x, one, w, w, w), F.batch_norm(x, None, None, w, w, training=True)]
    layers = nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.BatchNorm1d(4), nn.InstanceNorm1d(4, affine=True)
    return {t.dtype for t in (*every, F.instance_norm(x, weight=w), *[layer(x) for layer in layers])}


def shallow() -> Any:
    x = nn.Parameter(torch.zeros(2))
    y = copy.copy(x)
    with torch.no_grad():
        y += 1
        x[0] = 5
    (y * 3).sum().backward()
    return x.tolist(), y.tolist(), x.grad, y.grad is None, isinstance(y, nn.Parameter)


def smaller(mode: str) -> list[float]:
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    found = F.interpolate(x, size=(2, 3), mode=mode, antialias=True)
    return [round(v, 4) for v in found.flatten().tolist()]


class Mixin:
    def __init__(self) -> None:
        self.mixed = True


EDGES = """
torch.gradient(torch.tensor([2, -2, INF, INF, 3.0]))[0] -> [-4.0, INF, INF, -INF, -INF]
seeded(torch.bfloat16) -> [2.0] * 3
seeded(torch.float16) -> [2.0] * 3
torch.bernoulli(torch.ones(3), out=torch.zeros(3)) -> [1.0] * 3
torch.zeros(3, dtype=torch.uint8).bernoulli_(torch.tensor([1.0])) -> [1, 1, 1]
400 < torch.zeros(1000, dtype=torch.int).bernoulli_().sum().item() < 600 -> True
torch.zeros(0, 3).split(0)[0].shape -> (0, 3)
torch.zeros(2, 3).split(0) -> UsageError
torch.cdist(torch.eye(2), torch.eye(2), compute_mode="use_mm_for_euclid_dist").shape -> (2, 2)
torch.ones(3).is_contiguous(memory_format=torch.contiguous_format) -> True
[inverse(d) for d in (torch.float32, torch.float64)] -> [True, True]
losses([0, 0], [0, 0]) -> [0.0, 0.0]
losses([0, 0], [1, 2]) -> [INF, INF]
norms(torch.bfloat16) -> {torch.bfloat16}
norms(torch.float16) -> {torch.float16}
F.pdist(torch.tensor([[INF], [INF], [1.0]]), p=0).isnan() -> [True, False, False]
shallow() -> ([5.0, 1.0], [5.0, 1.0], None, False, True)
copy.copy(torch.ones(1, requires_grad=True) * 2).requires_grad -> True
torch.zeros(2, 1).scatter(0, torch.zeros(0).long(), torch.ones(2)) -> [[0.0], [0.0]]
torch.zeros(2, 1).scatter(0, torch.zeros(0).long(), 1.0) -> [[0.0], [0.0]]
torch.zeros(2, 1).scatter_reduce(0, torch.zeros(0).long(), torch.ones(2), "sum") -> [[0.0], [0.0]]
F.scaled_dot_product_attention(torch.ones(1, 0), torch.ones(2, 0), torch.tensor([[1.0], [2]])) -> [[1.5]]
smaller("bilinear") -> [3.1571, 4.3571, 5.5571, 9.4429, 10.6429, 11.8429]
smaller("bicubic") -> [2.537, 3.8471, 5.1572, 9.8428, 11.1529, 12.463]
F.interpolate(torch.ones(1, 1, 4), 2, mode="linear", antialias=True) -> UsageError
pickle.loads(pickle.dumps(torch.tanh))(torch.zeros(1)) -> [0.0]
pickle.loads(pickle.dumps(torch.zeros))(1) -> [0.0]
pickle.loads(pickle.dumps(F.softsign))(torch.zeros(1)) -> [0.0]
pickle.loads(pickle.dumps(torch.special.expit))(torch.zeros(1)) -> [0.5]
torch.ones(1).double(memory_format=torch.preserve_format).cpu(memory_format=None) -> [1.0]
F.cosine_similarity(torch.tensor([[1, 0]]), torch.tensor([[3.0, 0]])) -> [1.0]
F.cosine_similarity(torch.ones(1, 1), torch.ones(1, 1), eps=-1.0) -> UsageError
nn.RNNCell(2, 0)(torch.ones(3, 2)).shape -> (3, 0)
nn.GRUCell(2, 3)(torch.ones(4, 2), torch.ones(1, 3)) -> UsageError
nn.PixelShuffle(0) and 0 -> 0
nn.PixelShuffle(0)(torch.ones(1, 4, 2, 2)) -> UsageError
reversed(torch.arange(4).reshape(2, 2)) -> [[2, 3], [0, 1]]
nn.Linear(1, 1).register_buffer("weight", torch.ones(1)) -> KeyError
nn.Sequential().add_module("", nn.ReLU()) -> KeyError
nn.ReLU().register_parameter(1, None) -> TypeError
nn.ReLU().get_submodule("b") -> AttributeError
nn.Sequential().add_module("a.b", nn.ReLU()) -> KeyError
nn.Sequential(nn.ReLU()).set_submodule("extra_repr", nn.ReLU()) -> AttributeError
nn.Linear(1, 1).to(torch.int64) -> TypeError
nn.LSTM(2, 3)(torch.ones(4, 5, 2), (torch.ones(1, 5, 3), torch.ones(1, 4, 3))) -> UsageError
nn.GRU(2, 3)(torch.ones(4, 5, 2), torch.ones(2, 5, 3)) -> UsageError
{*nn.Dropout1d()(torch.ones(40, 3)).sum(1).tolist()} -> {0.0, 6.0}
{*nn.Dropout3d()(torch.ones(40, 3, 1, 1)).sum((1, 2, 3)).tolist()} -> {0.0, 6.0}
len({*F.dropout2d(torch.ones(40, 3, 1)).sum((1, 2)).tolist()}) > 2 -> True
nn.Dropout1d()(torch.ones(1, 2, 3, 4)) -> UsageError
nn.ReflectionPad1d(1)(torch.ones(1, 2, 3, 4)) -> UsageError
nn.LayerNorm(())(torch.ones(())) -> UsageError
nn.Parameter().shape -> (0,)
hasattr(type("A", (nn.Module, Mixin), {})(), "mixed") -> False
hasattr(type("A", (nn.Module, Mixin), {"call_super_init": True})(), "mixed") -> True
F.ctc_loss(torch.zeros(0, 0, 4), torch.zeros(0).long(), [], []) -> UsageError
nn.Sequential(nn.ReLU()).insert(-5, nn.ReLU()) -> IndexError
F.cosine_embedding_loss(torch.ones(3, 2), torch.ones(3, 2), torch.ones(3, 1)) -> UsageError
F.softshrink(torch.ones(1).half(), 65507.0) -> UsageError
torch.addcdiv(torch.ones(1), torch.ones(1).int(), torch.ones(1).int()) -> UsageError
torch.manual_seed(2**64) -> ValueError
torch.Generator().manual_seed(-1).initial_seed() -> 2**64 - 1
torch.ones(2, 3) @ torch.ones(2, 3) -> RuntimeError
torch.zeros(3, 4).size(dim=-1) -> 4
abs((torch.arange(101).double() / 100).quantile(0.3).item() - 0.3) < 1e-15 -> True
abs((torch.arange(101).double() / 100).quantile([0.1, 0.7]).tolist()[1] - 0.7) < 1e-15 -> True
[torch.ones(1).type(t).type() for t in ("torch.IntTensor", torch.IntTensor)] -> ["torch.IntTensor"] * 2
nn.Embedding(2, 99, padding_idx=0).weight[0].signbit().any() -> False
torch.special.entr(torch.zeros(1)).signbit() -> [False]
pickle.loads(pickle.dumps(torch.bfloat16)) is torch.bfloat16 is copy.deepcopy(torch.bfloat16) -> True
[(torch.tensor([1, 2]).byte() < n).tolist() for n in range(1000, 1007)] -> [[True, True]] * 7
F.pad(torch.zeros(0, 2), (0, 0, 1, 0)) -> [[0.0, 0.0]]
F.pad(torch.zeros(0, 3).sum(1), (2, 1)) -> [0.0, 0.0, 0.0]
F.pad(torch.zeros(0).sort(0)[0], (1, 1)) -> [0.0, 0.0]
[torch.ones(2, 3)[:, :0].numpy().shape, torch.ones(2, 3)[:, :0].sum().item()] -> [(2, 0), 0.0]
torch.tensor([], dtype=torch.int32) -> []
torch.tensor([1.0, 2.0]).quantile(torch.tensor([0.5, 2.0])).nan_to_num(7.0) -> [1.5, 7.0]
[t.shape + (t.item(),) for t in torch.tensor(3.0).topk(1)] -> [(3.0,), (0,)]
torch.einsum("i->", torch.ones(4096, dtype=torch.float16)) -> 4096.0
torch.tensor([1.0, -1.0]) // 0 -> [INF, -INF]
(torch.tensor([0.0]) % 0).isnan() -> [True]
[torch.result_type(True, 3), torch.result_type(3, 2.0)] -> [torch.int64, torch.float32]
torch.bernoulli(torch.ones(2), out=torch.zeros(2).int()) -> [1, 1]
torch.zeros(0).new(torch.Size([3, 4])).shape -> (3, 4)
torch.ones(1).unflatten(0, []) -> RuntimeError
torch.Generator("opengl") -> RuntimeError
torch.gradient(torch.ones(3), spacing=[torch.arange(3.0).double()])[0].dtype -> torch.float64
[torch.ones(3)[1:].untyped_storage().nbytes(), torch.ones(3)[1:].storage().size()] -> [12, 3]
[len(torch.ones(3).T.untyped_storage()), torch.ones(0).untyped_storage().data_ptr()] -> [12, 0]
(lambda x: x.untyped_storage().data_ptr() == x[1:].untyped_storage().data_ptr())(torch.ones(3)) -> True
torch.tensor([INF]) -> [INF]
torch.tensor((1 << 63) - 1) -> (1 << 63) - 1
[torch.int8.is_signed, torch.bool.is_signed, torch.float32.is_signed] -> [True, False, True]
torch.tensor([44, 5], dtype=torch.int8) == torch.tensor(300) -> [False, False]
torch.tensor([1 << 53]) < torch.tensor((1 << 53) + 1, dtype=torch.uint64) -> [True]
torch.stack([torch.ones(1).var(), torch.ones(1).std()]).isnan() -> [True, True]
nn.BatchNorm1d(3).eval()(torch.zeros(1, 3)) -> [[0.0] * 3]
nn.GroupNorm(1, 3)(torch.zeros(1, 3)) -> [[0.0] * 3]
nn.GroupNorm(1, 3)(torch.zeros(0, 3)).shape -> (0, 3)
nn.BatchNorm2d(3)(torch.zeros(1, 3, 1, 2)).shape -> (1, 3, 1, 2)
torch.linspace(4.3, 1, 5, dtype=torch.int64) -> [4, 3, 2, 1, 1]
torch.tensor([1.00390625, 3.14159], dtype=torch.bfloat16) -> [1.0, 3.140625]
torch.tensor([1], requires_grad=True) -> RuntimeError
nn.GLU()(torch.zeros(2, 0)).shape -> (2, 0)
torch.tensor([-1.5, 2.0, -INF], dtype=torch.float64).angle() -> [math.pi, 0.0, math.pi]
(torch.zeros(0, dtype=torch.int) // 0).shape -> (0,)
abs(torch.tensor([0, 1, 2, 3]).logsumexp(0).item() - 3.4401896) < 1e-5 -> True
F.scaled_dot_product_attention(torch.ones(2), torch.ones(2, 2), torch.ones(2, 2)) -> UsageError
"""
KNOWN = {"pickle": pickle, "UsageError": UsageError, **globals()}


@pytest.mark.parametrize("line", EDGES.strip().splitlines())
def test_an_edge_has_the_value_of_pytorch(line: str):
    text, wanted = line.split(" -> ")
    want: Any = eval(wanted, KNOWN)
    if isinstance(want, type):
        with pytest.raises(want):
            eval(text, KNOWN)
    else:
        found = eval(text, KNOWN)
        assert (found.tolist() if isinstance(found, torch.Tensor) else found) == want
