"""Weights as a file has them: matrices of bfloat16, float16, float32 or quantised blocks, in device memory.

A weight is read once from its file into device memory, and stays in the file's form. Products convert its
elements to float32, or with one row to integers, as they load them (`WeightMatrix.floats` is a lazy value
that the product's kernel contains), so no second copy exists. Matrices of one form that have the same input,
such as those of queries, keys and values, are read behind each other into one block, and are one product.

Not here: formats of files (`folder`). Next: `block`, which computes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final, Protocol

from compiler.dtype import DType, dtypes
from frontend.device import Device
from frontend.evaluation.expr import leaf_expr
from frontend.evaluation.storage import Leaf
from frontend.tensor import Tensor
from hcq.errors import UsageError

if TYPE_CHECKING:
    from frontend.nn.state.gguf import Packing
    from frontend.nn.state.tensor_file import TensorEntry, TensorFile


MOST_RUNS: Final = 8
"""Runs of a block up to which the product with one row is a sum over them: one kernel."""


@dataclass(slots=True)
class Progress:
    """How many bytes of the weights have been read; `show(done, total)` is called after each weight."""

    show: Callable[[int, int], object] | None
    total: int
    done: int = 0

    def add(self, count: int) -> None:
        """Count bytes that have been read."""
        self.done += count
        if self.show is not None:
            self.show(self.done, self.total)


class Source(Protocol):
    """Weights by name, of files that are open."""

    @property
    def progress(self) -> Progress:
        """The progress of reading them."""
        ...

    @property
    def device(self) -> str:
        """The name of the device that weights are read to."""
        ...

    def find(self, name: str) -> Stored | None:
        """Return the weight of a name, None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Stored:
    """A weight in files: its parts behind each other, of one dtype or packing, and the shape of the whole.

    `columns`: matrices are stored as (inputs, outputs), `shape` is so, too.
    """

    parts: tuple[tuple[TensorFile, TensorEntry], ...]
    shape: tuple[int, ...]
    columns: bool = False

    @property
    def form(self) -> tuple[DType, Packing | None, bool]:
        """Return dtype, packing (None: none) and order. Weights of one form can be read into one block."""
        entry = self.parts[0][1]
        return entry.dtype, entry.packing, self.columns

    @property
    def size(self) -> int:
        """Bytes."""
        return sum([e.end - e.begin for _, e in self.parts])


@dataclass(frozen=True, slots=True)
class WeightMatrix:
    """A matrix (outputs, inputs) in memory, or with a leading axis one for each expert."""

    data: Tensor
    """The elements; of a packing (..., outputs, blocks, bytes of a block) uint8."""
    packing: Packing | None = None
    columns: bool = False
    """Whether `data` is (inputs, outputs)."""

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.data.shape) * self.data.dtype.itemsize

    def floats(self, data: Tensor | None = None) -> Tensor:
        """Return the elements, or those of a part of `data`, as a lazy float32 tensor."""
        data = self.data if data is None else data
        if self.packing is not None:
            return self.packing.read(data).flatten(-2)
        return data if data.dtype is dtypes.float32 else data.cast(dtypes.float32)

    def product(self, x: Tensor) -> Tensor:
        """Return x (..., inputs) times the transposed matrix, (..., outputs) float32."""
        packing, one = self.packing, x.numel() == x.shape[-1]
        if packing is None or not one or packing.run * MOST_RUNS < packing.elements:
            w = self.floats()
            return x @ (w if self.columns else w.transpose(-1, -2))
        whole = packing.factors is not None and self.data.device.startswith("cpu")
        y = self._in_whole_numbers(x, packing) if whole else self._of_one(x, packing)
        return y.reshape(*x.shape[:-1], y.shape[0])

    def _of_one(self, x: Tensor, packing: Packing) -> Tensor:
        """Return the product with one row: a sum over runs with constant shifts, scaled once a block."""
        once = packing.factors is None and packing.least is None
        w = packing.values(self.data) if once else packing.read(self.data)
        each = x.reshape(1, -1, packing.elements)
        first, *others = [each[..., run] * w[..., run] for run in _runs(packing.elements, packing.run)]
        terms = sum(others, first)
        return (terms * packing.scale(self.data) if once else terms).sum((1, 2))

    def _in_whole_numbers(self, x: Tensor, packing: Packing) -> Tensor:
        """Return the product with one row, rounded in each block to scale * q, |q| <= 32767.

        A lane adds the products of two neighbours of each run, in int32: below 2**31 for all packings. Blocks
        of 16 groups are two steps: a kernel computes a value at 8 places at most (`schedule.analysis`).
        """
        assert packing.factors is not None
        b, (outputs, blocks, size) = self.data.realize(), self.data.shape
        factors, lanes = packing.factors(b), packing.run // 2
        steps = factors.shape[-1] // 8
        each = x.reshape(1, blocks, 1, packing.elements)
        scale = (each.abs().amax(-1, keepdim=True) * (1 / 32767)).maximum(1e-37).clone()
        q = (each / scale).round().cast(dtypes.int32).reshape(1, blocks, steps, -1, 2)
        pairs = ((q[..., 0] & 0xFFFF) | (q[..., 1] << 16)).cast(dtypes.uint32).clone()
        both = _half(pairs, 0) + _half(pairs, 1)
        words = Tensor.of_part((leaf_expr((outputs, blocks, size // 2), dtypes.uint16, b.device), b.leaves))
        codes = packing.codes(words).reshape(outputs, blocks, steps, -1)
        factors, terms = factors.reshape(outputs, blocks, steps, 8), []
        for n, run in enumerate(_runs(codes.shape[-1], lanes)):
            v, w = codes[..., run], pairs[..., run]
            term = _half(v, 0) * _half(w, 0) + _half(v, 1) * _half(w, 1)
            term = term - (both * packing.offset).clone()[..., run] if packing.offset else term
            terms.append(term * _spread(factors[..., n * steps : (n + 1) * steps], lanes))
        y = sum(terms[1:], terms[0]).cast(dtypes.float32) * (packing.scale(b).unsqueeze(-1) * scale)
        if packing.least is not None:
            step, m = packing.least(b)
            assert m is not None
            sums = both.reshape(1, blocks, lanes, -1).sum(-1).cast(dtypes.int32).clone()
            least = (m.cast(dtypes.int32) * sums).cast(dtypes.float32).unsqueeze(-2)
            y = y - least * (step.unsqueeze(-1) * scale / steps)  # a share in each step
        return y.sum((1, 2, 3))

    def rows(self, ids: Tensor) -> Tensor:
        """Return the rows, or the matrices of experts, of ids (...): (..., *rest) float32."""
        return self.floats(self.data[ids])


@dataclass(frozen=True, slots=True)
class Projection:
    """Matrices of one input, and their biases."""

    parts: tuple[tuple[WeightMatrix, Tensor | None, tuple[int, ...]], ...]
    """For each matrix: itself, its bias or None, and the numbers of outputs that it is divided into."""

    @property
    def size(self) -> int:
        """Bytes of the matrices."""
        return sum([m.size for m, *_ in self.parts])

    def __call__(self, x: Tensor) -> list[Tensor]:
        """Return the outputs for x (..., inputs), float32, divided as the parts say."""
        out: list[Tensor] = []
        for matrix, bias, sizes in self.parts:
            y = matrix.product(x)
            y = y if bias is None else y + bias
            out += [y] if len(sizes) == 1 else y.split(list(sizes), -1)
        return out


def _runs(count: int, size: int) -> list[slice]:
    return [slice(at, at + size) for at in range(0, count, size)]


def _half(word: Tensor, n: int) -> Tensor:
    """Return the lower (0) or upper (1) half of uint32 as a signed number, int32."""
    return (word >> 16 if n else word).cast(dtypes.int16).cast(dtypes.int32)


def _spread(factors: Tensor, lanes: int) -> Tensor:
    """Return one factor, or for each half of the lanes one, int32."""
    first, last = (factors[..., n : n + 1].cast(dtypes.int32) for n in (0, factors.shape[-1] - 1))
    lane = Tensor.arange(lanes, dtype=dtypes.int32, device=factors.device)
    return first if factors.shape[-1] == 1 else (lane < lanes // 2).where(first, last)


def _placed(source: Source, each: Sequence[Stored], shape: tuple[int, ...], dtype: DType) -> Tensor:
    """Return weights, read behind each other into one block of device memory, as a tensor of a shape."""
    device = Device[source.device]
    buffer = device.alloc(sum([s.size for s in each]))
    at = 0
    for file, e in [part for s in each for part in s.parts]:
        file.read_into(device, buffer, at, e.begin, e.end)
        at += e.end - e.begin
    source.progress.add(at)
    return Tensor.of_part((leaf_expr(shape, dtype, device.name), (Leaf(buffer),)))


def _is(stored: Stored, name: str, shape: tuple[int, ...]) -> Stored:
    found = (*stored.shape[:-2], *reversed(stored.shape[-2:])) if stored.columns else stored.shape
    if found != shape:
        raise UsageError(
            f"{stored.parts[0][0].path}: wanted the shape {shape} for {name}, saw {found}\n"
            "hint: the settings of the model are those of another one, or the file is damaged"
        )
    return stored


def needed(source: Source, name: str, shape: tuple[int, ...]) -> Stored:
    """Return the weight of a name. Raises `UsageError` if it is missing or has another shape."""
    stored = source.find(name)
    if stored is None:
        raise UsageError(f"{source}: it has no weight {name}, which the model of its settings needs")
    return _is(stored, name, shape)


def vector(source: Source, name: str, size: int) -> Tensor:
    """Return a weight (size,), as float32. Raises `UsageError` as `needed` and `_floating`."""
    stored = needed(source, name, (size,))
    packing = _floating(source, name, stored)
    if packing is None:
        found = _placed(source, [stored], (size,), stored.form[0]).cast(dtypes.float32)
    else:
        blocks = (size // packing.elements, packing.size)
        found = packing.read(_placed(source, [stored], blocks, dtypes.uint8)).reshape(size)
    return found.realize()


def _floating(source: Source, name: str, stored: Stored) -> Packing | None:
    """Return the packing of a weight. Raises `UsageError` for others than floats of 16 or 32 bits."""
    dtype, packing, _ = stored.form
    if packing is None and not (dtype.is_float and dtype.bits in {16, 32}):
        raise UsageError(f"{source}: {name} has the dtype {dtype.name}; wanted floats of 16 or 32 bits")
    return packing


def matrix(
    source: Source, names: Sequence[str], rows: Sequence[int], inputs: int, *, lead: tuple[int, ...] = ()
) -> WeightMatrix:
    """Return matrices (rows, inputs) one below the other, all of one form.

    Raises `UsageError` as `needed`, and for matrices of different forms or numbers of inputs.
    """
    each = [needed(source, n, (*lead, r, inputs)) for n, r in zip(names, rows, strict=True)]
    dtype, _, columns = each[0].form
    packing, total = _floating(source, names[0], each[0]), sum(rows)
    if packing is not None:
        shape = (*lead, total, inputs // packing.elements, packing.size)
        return WeightMatrix(_placed(source, each, shape, dtypes.uint8), packing)
    shape = (*lead, inputs, total) if columns else (*lead, total, inputs)
    return WeightMatrix(_placed(source, each, shape, dtype), None, columns)


def linear(source: Source, names: Sequence[str], rows: Sequence[int], inputs: int) -> Projection:
    """Return the matrices of some names (each with rows and inputs), as few products as their forms allow.

    Raises `UsageError` as `needed` and `matrix`.
    """
    runs: list[tuple[list[str], list[int]]] = []
    last: object = None
    for name, count in zip(names, rows, strict=True):
        form = needed(source, f"{name}.weight", (count, inputs)).form
        if form != last or form[2]:  # matrices (inputs, outputs) do not lie one behind the other
            runs.append(([], []))
        last = form
        runs[-1][0].append(name)
        runs[-1][1].append(count)
    each = []
    for run, counts in runs:
        made = matrix(source, [f"{n}.weight" for n in run], counts, inputs)
        each.append((made, _biases(source, run, counts), tuple(counts)))
    return Projection(tuple(each))


def _biases(source: Source, names: Sequence[str], rows: Sequence[int]) -> Tensor | None:
    """Return the biases of some matrices in a row, 0 for those without; None if none has one."""
    if all(source.find(f"{n}.bias") is None for n in names):
        return None
    found = [
        vector(source, f"{n}.bias", r)
        if source.find(f"{n}.bias") is not None
        else Tensor.zeros(r, dtype=dtypes.float32, device=source.device)
        for n, r in zip(names, rows, strict=True)
    ]
    return found[0] if len(found) == 1 else found[0].cat(*found[1:], axis=0).realize()


def divided(source: Source, name: str, sizes: Sequence[int], inputs: int) -> Projection:
    """Return the matrix of one name whose outputs are divided into some sizes.

    Raises `UsageError` as `needed`.
    """
    total = sum(sizes)
    made = matrix(source, [f"{name}.weight"], [total], inputs)
    return Projection(((made, _biases(source, [name], [total]), tuple(sizes)),))
