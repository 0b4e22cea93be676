"""Typical mistakes of a newcomer: each message has what was wanted, what was seen, what to try.

A row is (mistake, class of the error, words that the message has). The words were chosen from what a newcomer
typed and needs to know. Not here: names that do not exist (tests/hcq/test_names.py).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import frontend
import hcq
import interop
from frontend import Tensor, TinyJit, nn, optim
from frontend.nn import functional
from hcq.config import read
from hcq.errors import HcqError, OutOfMemoryError, UsageError, UsageIndexError, UsageTypeError
from tests.children import python

if TYPE_CHECKING:
    from pathlib import Path


def _x() -> Tensor:
    return Tensor.ones(2, 3)


class _Misspelt(nn.Module):
    def forwrd(self, x: Tensor) -> Tensor:
        return x


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)


class _Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(Tensor.ones(2, 3))
        self.register_buffer("mean", Tensor.zeros(3))


def _replaced(module: nn.Module, name: str, value: Any) -> None:
    setattr(module, name, value)


def _captured(fn: Callable[..., Any], *calls: tuple[Any, ...]) -> None:
    jit = TinyJit(fn)
    for args in calls:
        jit(*args)


def _ones(*sizes: int, on: str | None = None) -> Tensor:
    return Tensor.ones(*sizes, device=on).contiguous().realize()


def _optimised_without_backward() -> None:
    step = TinyJit(optim.SGD(_Net().parameters(), lr=0.1).step)
    for _ in range(2):
        step()


def _changed_in_place() -> None:
    weight = Tensor.ones(3, requires_grad=True)
    weight += 1


def _changed_expanded_view() -> None:
    view = _ones(1, 3).expand(4, 3)
    view += 1


def _gradient_in_capture() -> None:
    weight = Tensor.ones(3, requires_grad=True)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        weight.grad = None
        loss = (x * weight).sum()
        loss.backward()
        return loss

    for _ in range(2):
        step(_ones(3))


def _closed_device() -> None:
    device = hcq.open("cpu")
    device.close()
    device.alloc(16)


def _closed_buffer() -> None:
    with hcq.open("cpu") as device:
        buffer = device.alloc(16)
        buffer.close()
        device.compute.submit(device.compute.record().fill(buffer, 0))


def _with_device(use: Callable[[hcq.Device], object]) -> None:
    with hcq.open("cpu") as device:
        use(device)


MISTAKES: list[tuple[str, Callable[[], object], type[Exception], tuple[str, ...]]] = [
    ("factors that do not fit", lambda: _x() @ _x(), UsageError, ("(2, 3)", "must equal")),
    ("sizes that differ", lambda: _x() + Tensor.ones(2, 4), UsageError, ("(2, 3)", "(2, 4)", "broadcast")),
    ("reshape to another size", lambda: _x().reshape(4, 2), UsageError, ("6 elements", "8")),
    ("cat of other rows", lambda: frontend.cat([_x(), Tensor.ones(2, 4)]), UsageError, ("(2, 4)", "equal")),
    ("layer of another width", lambda: nn.Linear(5, 1)(_x()), UsageError, ("5 inputs", "(2, 3)")),
    ("image without channels", lambda: nn.Conv2d(3, 4, 3)(Tensor.ones(1, 8, 8)), UsageError, ("3 channels",)),
    ("axis that is not there", lambda: _x().sum(2), UsageIndexError, ("no axis 2", "-2..1")),
    ("row that is not there", lambda: _x()[5], UsageIndexError, ("index 5", "2 elements")),
    ("index by a float", lambda: _x()[Tensor([1.0])], UsageIndexError, ("integers", "float32", "cast")),
    ("ragged lists", lambda: Tensor([[1, 2], [3]]), UsageError, ("differ in length", "equal")),
    ("texts as data", lambda: Tensor(["a"]), UsageError, ("numbers", "'a'", "str")),
    ("array of objects", lambda: Tensor(np.array([None])), UsageError, ("object", "astype")),
    ("dtype misspelt", lambda: Tensor.ones(2, dtype="flaot32"), UsageError, ("'flaot32'", "float32")),
    ("complex numbers", lambda: Tensor(np.ones(2, np.complex64)), UsageError, ("complex64", "convert")),
    ("words as floats", lambda: nn.Embedding(9, 4)(Tensor.ones(2)), UsageTypeError, ("integers", "cast")),
    ("classes as floats", lambda: functional.cross_entropy(_x(), Tensor.ones(2)), UsageError,
     ("integer targets (2,)", "float32")),
    ("target with one axis more", lambda: nn.BCELoss()(Tensor.ones(3), Tensor.ones(3, 1)), UsageError,
     ("wanted a target of the shape (3,)", "(3, 1)", "reshape")),
    ("item of several", lambda: _x().item(), UsageError, ("one element", "(2, 3)")),
    ("truth of several", lambda: bool(_x() > 0), UsageError, ("one element", "any()")),
    ("gradient of integers", lambda: Tensor([1], requires_grad=True), UsageError, ("int64", "float()")),
    ("GPU that is not here", lambda: Tensor.ones(2, device="cuda:63"), UsageError,
     ("nv or amd", "has", "hcq`")),
    ("accelerator of others", lambda: hcq.open("tpu"), UsageError, ("'tpu'", "drivers:", "cpu")),
    ("dtype as a device", lambda: _x().to("float16"), UsageError, ("dtype 'float16'", "dtype=")),
    ("sum of two", lambda: _ones(2) + _ones(2, on="amd-emu"), UsageError, ("add: ", "amd-emu", ".to(")),
    ("product over devices", lambda: _ones(2, 3) @ _ones(3, 2, on="amd-emu"), UsageError, ("matmul: ",)),
    ("cat over devices", lambda: frontend.cat([_ones(2), _ones(2, on="amd-emu")]), UsageError, ("cat: ",)),
    ("rows of another device", lambda: _ones(2)[_ones(2, on="amd-emu").int()], UsageError, ("indexing: ",)),
    ("model left behind", lambda: _Net()(_ones(2, 2, on="amd-emu")), UsageError, ("Linear: ", ".to(")),
    ("filter left", lambda: nn.Conv2d(1, 1, 1)(_ones(1, 1, 4, 4, on="amd-emu")), UsageError, ("Conv2d: ",)),
    ("number as a device", lambda: Tensor.ones(2, device=0), UsageTypeError, ("'cpu'", "saw 0")),  # type: ignore[arg-type]
    ("backward of many", lambda: (Tensor.ones(2, requires_grad=True) * 2).backward(), UsageError,  # noqa: PLW0108 - a tensor opens a device
     ("(2,)", "sum()")),
    ("backward of constants", lambda: _x().sum().backward(), UsageError, ("requires_grad", "make one")),
    ("captured step without backward", _optimised_without_backward, UsageError, ("gradient", "backward()")),
    ("change of a parameter", _changed_in_place, UsageError, ("in place", "no_grad")),
    ("change of repeated rows", _changed_expanded_view, UsageError, ("ambiguous", "clone()")),
    ("group as a text", lambda: optim.Adam([_x()]).add_param_group("abc"), UsageTypeError,  # type: ignore[arg-type]
     ("params", "'abc'")),
    ("group without parameters", lambda: optim.Adam([_x()]).add_param_group({"lr": 1.0}), UsageTypeError,
     ("params", "lr")),
    ("repeated None times", lambda: nn.Sequential(nn.ReLU()) * None, UsageTypeError,
     ("whole number", "None")),
    ("repeated 0 times", lambda: nn.Sequential(nn.ReLU()) * 0, UsageError, ("at least once", "0")),
    ("batch of a number", lambda: nn.data.default_collate(5), UsageTypeError, ("samples", "5")),  # type: ignore[arg-type]
    ("sample None", lambda: nn.data.default_collate([1, None]), UsageTypeError,
     ("numbers", "None", "collate_fn")),
    ("samples of two kinds", lambda: nn.data.default_collate([(1, 2), 3]), UsageTypeError, ("(1, 2)",)),
    ("sample without a key", lambda: nn.data.default_collate([{"a": 1}, {"b": 1}]), UsageTypeError,
     ("'a'", "'b'")),
    ("model for its parameters", lambda: optim.Adam(_Net()), UsageTypeError, ("Net", "parameters()")),  # type: ignore[arg-type]
    ("no parameters", lambda: optim.Adam([]), UsageError, ("at least one", "attributes")),
    ("rate as a text", lambda: optim.Adam([_x()], lr="1"), UsageTypeError, ("lr", "number", "'1'")),  # type: ignore[arg-type]
    ("schedule of a number", lambda: optim.lr_scheduler.StepLR(0.1, 5), UsageTypeError,
     ("wanted an optimiser", "0.1")),
    ("clip a model", lambda: nn.utils.clip_grad_norm_(_Net(), 1.0), UsageTypeError,
     ("tensors", "parameters()")),
    ("parameter replaced", lambda: _replaced(_Own(), "weight", _x()), UsageTypeError,
     ("nn.Parameter", "copy_()")),
    ("number for a parameter", lambda: _replaced(_Own(), "weight", 3), UsageTypeError,
     ("nn.Parameter", "saw 3")),
    ("number for a buffer", lambda: _replaced(_Own(), "mean", 3), UsageTypeError,
     ("a tensor or None", "mean")),
    ("number for a weight", lambda: _replaced(nn.Linear(2, 2), "weight", 3), UsageTypeError,
     ("a tensor", "3")),
    ("buffer under a used name", lambda: _Own().register_buffer("weight", _x()), UsageError,
     ("does not use",)),
    ("buffer for a weight", lambda: nn.Linear(2, 2).register_buffer("weight", _x()), UsageError,
     ("does not use", "weight")),
    ("state that is no dictionary", lambda: TinyJit.load("x", state=_Net()), UsageTypeError,
     ("wanted a dictionary of tensors", "_Net")),
    ("buffer with a dot", lambda: _Own().register_buffer("a.b", _x()), UsageError, ("without dots", "a.b")),
    ("buffer of a number", lambda: _Own().register_buffer("b", 3), UsageTypeError, ("a Tensor", "saw 3")),
    ("parameter of a tensor", lambda: _Own().register_parameter("b", _x()), UsageTypeError,
     ("nn.Parameter",)),
    ("layer of a number", lambda: _Own().add_module("b", 3), UsageTypeError, ("a Module", "saw 3")),
    ("parameter of no name", lambda: _Own().get_parameter("w"), UsageError, ("no parameter 'w'",)),
    ("number in a Sequential", lambda: nn.Sequential().append(3), UsageTypeError, ("wanted layers", "int")),
    ("number in a ModuleDict", lambda: nn.ModuleDict().update({"a": 3}), UsageTypeError,
     ("modules", "saw 3")),
    ("dot in its name", lambda: nn.ModuleDict({"a.b": nn.ReLU()}), UsageTypeError, ("without dots", "a.b")),
    ("computed parameter", lambda: optim.SGD([_Own().weight * 2], lr=0.1), UsageError,
     ("leaves", "detach()")),
    ("number for a layer", lambda: _replaced(_Net(), "layer", 3), UsageTypeError, ("a module", "layer", "3")),
    ("tensor in a ModuleList", lambda: nn.ModuleList([_x()]), UsageTypeError,
     ("wanted modules", "float32[2, 3]")),
    ("number appended to it", lambda: nn.ModuleList().append(3), UsageTypeError, ("wanted modules", "saw 3")),
    ("batch norm of one value", lambda: nn.BatchNorm1d(3)(_ones(1, 3)), UsageError, ("(1, 3)", "eval()")),
    ("instance norm of one", lambda: nn.InstanceNorm1d(3)(_ones(2, 3, 1)), UsageError,
     ("one value", "(2, 3, 1)")),
    ("group norm of one", lambda: nn.GroupNorm(3, 3)(_ones(1, 3)), UsageError, ("one value", "(1, 3)")),
    ("kernel too large", lambda: nn.Conv2d(3, 4, 9)(_ones(1, 3, 4, 4)), UsageError,
     ("conv2d", "of 9", "4 elements")),
    ("pool too large", lambda: nn.MaxPool2d(9)(_ones(1, 3, 4, 4)), UsageError,
     ("max_pool2d", "of 9", "4 elements")),
    ("forward misspelt", lambda: _Misspelt()(_x()), UsageError, ("no forward()", "forwrd")),
    ("call of a list", lambda: nn.ModuleList([nn.ReLU()])(_x()), UsageError, ("one by one", "Sequential")),
    ("list in a list", lambda: nn.Sequential([nn.ReLU()]), UsageError, ("one by one", "list")),
    ("class for a layer", lambda: nn.Sequential(nn.ReLU), UsageError, ("class ReLU", "ReLU()")),
    ("two inputs for one", lambda: _Net()(_x(), _x()), UsageTypeError, ("too many", "arguments are x")),
    ("argument misspelt", lambda: nn.Linear(3, 4, baias=False), UsageTypeError, ("baias", "mean bias=")),  # type: ignore[call-arg]
    ("axis misspelt", lambda: _x().sum(1, keepdin=True), UsageTypeError, ("keepdin", "mean keepdim=")),
    ("weights of another model", lambda: _Net().load_state_dict({"w": _x()}), UsageError,
     ("missing", "['w']")),
    ("file for weights", lambda: _Net().load_state_dict("m.pt"), UsageTypeError, ("'m.pt'", "load(path)")),  # type: ignore[arg-type]
    ("model for data", lambda: frontend.save(_Net(), "m.pt"), UsageTypeError, ("numbers", "state_dict()")),
    ("value read in a capture", lambda: _captured(lambda x: x + x.sum().item(), (_ones(3),), (_ones(3),)),
     UsageError, ("captured function", "outside")),
    ("other shape in a replay", lambda: _captured(lambda x: x + 1, (_ones(3),), (_ones(3),), (_ones(4),)),
     UsageError, ("float32[3]", "float32[4]", "pad")),
    ("other number in a replay", lambda: _captured(lambda x, k: x + k, *[(_ones(3), k) for k in range(3)]),
     UsageError, ("captured with", "called with", "tensors")),
    ("gradient left by a replay", _gradient_in_capture, UsageError, ("gradient", "inside")),
    ("capture of a number", lambda: TinyJit(5), UsageTypeError, ("function", "saw 5", "def")),  # type: ignore[arg-type]
    ("compile a number", lambda: frontend.compile(3), UsageTypeError, ("function or a module", "saw 3")),
    ("closed device", _closed_device, UsageError, ("cpu:0", "closed")),
    ("closed buffer", _closed_buffer, UsageError, ("16 bytes", "closed")),
    ("size as a text", lambda: _with_device(lambda d: d.alloc("4k")), UsageError, ("bytes", "'4k'")),  # type: ignore[arg-type]
    ("more memory than there is", lambda: _with_device(lambda d: d.alloc(1 << 60)), OutOfMemoryError,
     ("TiB", "may use")),
    ("bytes for a kernel", lambda: _with_device(lambda d: d.load(b"x")), UsageTypeError,  # type: ignore[arg-type]
     ("KernelImage", "interop")),
    ("kernel file that is not there", lambda: _with_device(lambda d: interop.load(d, "nope.ptx", entry="x")),
     UsageError, ("path", "nope.ptx")),
    ("cpu device that is not there", lambda: hcq.open("cpu:99"), UsageError, ("cpu:0", "HCQ_CPU_DEVICES")),
    ("emulated GPU of nobody", lambda: hcq.open("nv-emu:sm_10"), UsageError, ("'sm_10'", "sm_90")),
    ("setting misspelt", lambda: read({"HCQ_VALDIATE": "1"}), UsageError, ("HCQ_VALDIATE", "HCQ_VALIDATE")),
    ("setting of words", lambda: read({"HCQ_VALIDATE": "yes"}), UsageError, ("0 or 1", "'yes'")),
    ("seed of letters", lambda: read({"HCQ_SEED": "abc"}), UsageError, ("whole number", "'abc'")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("mistake", "kind", "words"), [row[1:] for row in MISTAKES], ids=[r[0] for r in MISTAKES]
)
def test_the_message_says_what_was_wanted_and_seen(
    mistake: Callable[[], object], kind: type[Exception], words: tuple[str, ...]
):
    assert issubclass(kind, HcqError)
    with pytest.raises(kind) as caught:
        mistake()
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert [word for word in words if word not in text] == [], text


def test_what_may_stand_for_a_parameter_a_module_or_a_buffer_does():
    own, net = _Own(), _Net()
    own.weight = new = nn.Parameter(Tensor.ones(4))
    own.mean = Tensor.ones(2)
    net.layer = nn.Identity()
    assert [name for name, _ in own.named_parameters()] == ["weight"]
    assert own.weight is new
    assert [(name, t.shape) for name, t in own.named_buffers()] == [("mean", (2,))]
    own.weight = None
    assert list(own.parameters()) == []
    own.loss = Tensor(0.0)
    own.loss = 0.5  # a plain attribute
    plain = _Misspelt.__new__(_Misspelt)  # without super().__init__()
    plain.state = Tensor.ones(2)
    plain.state = (Tensor.ones(2), Tensor.ones(2))
    with pytest.raises(UsageError, match=r"^Module defines no forward\(\)$"):
        nn.Module()()


def test_lists_and_dictionaries_keep_what_is_put_into_them():
    layers = nn.Sequential(nn.Linear(1, 1)).append(nn.ReLU()).insert(0, nn.Tanh()).extend([nn.ReLU()])
    more = nn.ModuleList([nn.Tanh()])
    joined = layers + more
    assert [type(one).__name__ for one in joined] == ["Tanh", "Linear", "ReLU", "ReLU", "Tanh"]
    assert (type(joined), type(more + layers)) == (nn.Sequential, nn.ModuleList)
    tensors = nn.ParameterList([Tensor.ones(1)]).append(Tensor.ones(3))
    tensors[0] = Tensor.ones(5)
    tensors += [Tensor.ones(2)]
    named = nn.ParameterDict({"a": Tensor.ones(1)})
    named["b"] = Tensor.ones(2)
    named.setdefault("c", Tensor.ones(3))
    named |= {"d": Tensor.ones(4)}
    assert [t.shape for t in tensors.parameters()] == [(5,), (3,), (2,)]
    assert "".join([name * t.numel() for name, t in named.named_parameters()]) == "abbcccdddd"
    assert copy.deepcopy(named).keys() == named.keys()
    assert len(copy.deepcopy(layers)) == 4


def test_a_parameter_may_take_the_place_of_a_buffer_or_a_module():
    own, net = _Own(), _Net()
    own.mean = nn.Parameter(Tensor.ones(2))
    net.layer = nn.Parameter(Tensor.ones(2))
    assert [name for name, _ in own.named_parameters()] == ["weight", "mean"]
    assert own.named_buffers() == []
    assert [name for name, _ in net.named_parameters()] == ["layer"]
    assert own.get_parameter("mean") is own.mean
    assert _Own().get_buffer("mean").shape == (3,)


def test_a_parameter_that_was_written_in_place_is_a_leaf():
    layer = nn.Linear(2, 2)
    with frontend.no_grad():
        for p in layer.parameters():
            p.mul_(2.0)
    assert [(p.is_leaf, p.requires_grad) for p in layer.parameters()] == [(True, True)] * 2
    used = layer.weight * 2
    used.requires_grad_()
    assert not used.is_leaf
    assert (Tensor.ones(3) * 2).requires_grad_().is_leaf


@pytest.mark.parametrize(
    ("layer", "arguments"), [(nn.BatchNorm1d, (2,)), (nn.GroupNorm, (1, 2)), (nn.InstanceNorm1d, (2,))]
)
def test_norms_of_no_samples_are_empty(layer: Any, arguments: tuple[int, ...]):
    assert layer(*arguments)(Tensor.zeros(0, 2, 3)).shape == (0, 2, 3)


def test_there_are_at_least_forty_mistakes_each_once():
    assert len({row[0] for row in MISTAKES}) == len(MISTAKES) >= 40


@pytest.mark.parametrize(
    ("load", "wanted"),
    [
        (frontend.load, "PyTorch checkpoint"),
        (nn.state.safe_load, "safetensors file"),
        (nn.state.gguf_load, "GGUF file"),
        (frontend.onnx.load, "ONNX file"),
    ],
)
def test_a_file_that_is_not_there_is_named_with_the_one_beside_it(
    tmp_path: Path, load: Callable[[str], object], wanted: str
):
    (tmp_path / "model.bin").write_text("hello")
    with pytest.raises(FileNotFoundError, match=f"wanted a {wanted}.*did you mean model\\.bin"):
        load(str(tmp_path / "modle.bin"))
    with pytest.raises(IsADirectoryError, match=f"wanted a {wanted}"):
        load(str(tmp_path))
    with pytest.raises(UsageError, match=r"model\.bin(:| is no) "):
        load(str(tmp_path / "model.bin"))


@pytest.mark.parametrize("save", [frontend.save, nn.state.safe_save])
def test_a_file_in_a_folder_that_is_not_there_is_not_saved(tmp_path: Path, save: Callable[..., None]):
    with pytest.raises(FileNotFoundError, match="save: no such folder; make it first"):
        save({"x": _x()}, tmp_path / "weights" / "x.pt")


def test_a_program_ends_with_the_message_for_a_misspelt_setting():
    program = "from frontend import Tensor; print(Tensor([1.0]).tolist())"
    environment = {**os.environ, "HCQ_DEVCE": "cpu"}
    done = python("-c", program, status=None, env=environment)
    assert done.returncode == 1
    assert done.stderr.endswith("no setting is called HCQ_DEVCE\nhint: did you mean HCQ_DEVICE?\n")
