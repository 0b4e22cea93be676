"""Sequences of several lengths in one batch: padded, and packed for `nn.LSTM`, `nn.GRU` and `nn.RNN`.

A packed batch is the padded tensor and the lengths. Steps beyond the length of a sequence do not change its
state, and their outputs are zeros. Lengths are read from the device if they are a tensor; fewer or more
lengths than sequences, and lengths below 1, raise `UsageError`, flags that are no bools `UsageTypeError`.

Not here: the layers. Next: `nn.recurrent`.
"""

# ruff: noqa: FBT001, FBT002 - the field's signatures

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from frontend.arguments.aliases import answer_module
from frontend.arguments.conversion import flag
from frontend.arguments.settings import choice
from frontend.tensor import Tensor
from hcq.errors import UsageError, UsageTypeError


class PackedSequence:
    """A padded batch, (time, batch, ...) or (batch, time, ...), and the length of each sequence.

    It is made of `data` and `batch_sizes`, and is a sequence of these, `sorted_indices` and
    `unsorted_indices`. Raises `UsageError` for batch sizes that do not descend, or are not those of the data.
    """

    padded: Tensor
    lengths: tuple[int, ...]
    batch_first: bool
    in_order: bool
    """Whether the lengths had to descend: there are no indices of an order then."""

    def __init__(
        self, data: Tensor, batch_sizes: Any = None, sorted_indices: Any = None, unsorted_indices: Any = None
    ) -> None:
        if not isinstance(data, Tensor) or batch_sizes is None:
            text = "wanted data and batch_sizes\nhint: pack_padded_sequence and pack_sequence make one"
            raise UsageTypeError(f"PackedSequence: {text}")
        counts = [int(n) for n in getattr(batch_sizes, "tolist", lambda: batch_sizes)()]
        if counts != sorted(counts)[::-1] or min(counts, default=0) < 1 or sum(counts) != len(data):
            text = f"wanted batch_sizes that descend to {len(data)} rows in all, saw {counts}"
            raise UsageError(f"PackedSequence: {text}")
        lengths = [sum(i < n for n in counts) for i in range(counts[0])]
        rest, steps = ((0, 0),) * (data.ndim - 1), data.split(counts)
        padded = Tensor.stack(*[t.pad(((0, counts[0] - len(t)), *rest)) for t in steps])
        back = unsorted_indices
        if back is None and sorted_indices is not None:
            back = sorted_indices.argsort()
        if back is not None:
            padded, lengths = padded.index_select(1, back), [lengths[i] for i in back.tolist()]
        self._set(padded, tuple(lengths), False, back is None)

    def _set(self, padded: Tensor, lengths: tuple[int, ...], batch_first: bool, in_order: bool) -> None:
        self.padded, self.lengths, self.batch_first, self.in_order = padded, lengths, batch_first, in_order

    @classmethod
    def of(
        cls, padded: Tensor, lengths: tuple[int, ...], batch_first: bool, in_order: bool
    ) -> PackedSequence:
        """Return a padded batch with the length of each sequence as a packed one."""
        found = object.__new__(cls)
        found._set(padded, lengths, batch_first, in_order)
        return found

    def __iter__(self) -> Iterator[Any]:
        return iter((self.data, self.batch_sizes, self.sorted_indices, self.unsorted_indices))

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def _replace(self, **parts: Any) -> PackedSequence:
        """Return the batch with other parts, by their names."""
        names = ("data", "batch_sizes", "sorted_indices", "unsorted_indices")
        return PackedSequence(**(dict(zip(names, self, strict=True)) | parts))

    def to(self, *args: Any, **names: Any) -> PackedSequence:
        """Return the batch on another device or in another dtype, as `Tensor.to`."""
        return self.of(self.padded.to(*args, **names), self.lengths, self.batch_first, self.in_order)

    @property
    def _order(self) -> list[int]:
        return sorted(range(len(self.lengths)), key=lambda i: -self.lengths[i])

    @property
    def batch_sizes(self) -> Tensor:
        """The number of sequences that have each step, int64."""
        every = [sum(t < n for n in self.lengths) for t in range(max(self.lengths))]
        return Tensor(every, dtype="int64")

    @property
    def data(self) -> Tensor:
        """The elements step by step, each of the sequences that have it, the longest first."""
        x = self.padded.transpose(0, 1) if self.batch_first else self.padded
        order, rows = self._order, []
        for t, n in enumerate(self.batch_sizes.tolist()):
            rows.append(x[t] if self.in_order and n == len(order) else x[t][order[:n]])
        return Tensor.cat(rows)

    @property
    def sorted_indices(self) -> Tensor | None:
        """The numbers of the sequences, the longest first; None if this order was enforced (`in_order`)."""
        return None if self.in_order else Tensor(self._order, dtype="int64")

    @property
    def unsorted_indices(self) -> Tensor | None:
        """The places of the sequences in `sorted_indices`; None as there."""
        return None if self.sorted_indices is None else self.sorted_indices.argsort().cast("int64")

    def steps(self) -> list[Tensor]:
        """Return for each step a bool tensor (batch, 1): whether the sequence has that step."""
        made = Tensor([[[t < n] for n in self.lengths] for t in range(max(self.lengths))])
        return list(made.to(self.padded.device).unbind(0))


def _lengths(lengths: Any, batch: int) -> tuple[int, ...]:
    found = tuple(int(n) for n in (lengths.tolist() if hasattr(lengths, "tolist") else lengths))
    if len(found) != batch or min(found, default=0) < 1:
        raise UsageError(f"wanted {batch} lengths of at least 1, one for each sequence, saw {list(found)}")
    return found


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Return a packed batch of (time, batch, ...), or (batch, time, ...) with `batch_first`.

    Steps after the longest sequence are dropped. Raises `UsageError` for fewer than two axes, for a length
    beyond the batch, and with `enforce_sorted` for lengths that do not descend.
    """
    first = flag(batch_first, "pack_padded_sequence, batch_first")
    if input.ndim < 2:
        raise UsageError(f"pack_padded_sequence: wanted a batch of sequences, saw the shape {input.shape}")
    found = _lengths(lengths, input.shape[0 if first else 1])
    if max(found) > input.shape[1 if first else 0]:
        raise UsageError(f"pack_padded_sequence: the length {max(found)} is beyond the shape {input.shape}")
    if flag(enforce_sorted, "pack_padded_sequence, enforce_sorted") and list(found) != sorted(found)[::-1]:
        raise UsageError(
            f"pack_padded_sequence: wanted descending lengths, saw {list(found)}\n"
            "hint: pass enforce_sorted=False"
        )
    whole = input[:, : max(found)] if first else input[: max(found)]
    return PackedSequence.of(whole, found, first, enforce_sorted)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the padded batch, with `padding_value` beyond the lengths, and the lengths.

    It has `total_length` steps, None: those of the longest sequence. The lengths are an int tensor on the
    default device. Raises `UsageError` for fewer steps than the longest sequence has.
    """
    x, n = sequence.padded, max(sequence.lengths)
    if sequence.batch_first:
        x = x.transpose(0, 1)
    live = Tensor.stack(*sequence.steps()).reshape(n, x.shape[1], *(1,) * (x.ndim - 2))
    x = x.masked_fill(live.logical_not(), padding_value)
    if total_length is not None:
        if total_length < n:
            raise UsageError(
                f"pad_packed_sequence: wanted a total_length of at least {n}, saw {total_length}"
            )
        more = ((0, total_length - n), *((0, 0),) * (x.ndim - 1))
        x = x.pad(more, value=padding_value)
    return (x.transpose(0, 1) if batch_first else x), Tensor(list(sequence.lengths))


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Return sequences (length, ...) as one tensor (time, batch, ...), padded at the end.

    With `batch_first` it is (batch, time, ...); with `padding_side` "left" the padding is before the
    sequences. Raises `UsageError` for no sequences, for one without axes, for other axes that differ, and
    for another side.
    """
    choice("pad_sequence, padding_side", padding_side, ("left", "right"))
    every = list(sequences)
    if not every or any(t.ndim < 1 or t.shape[1:] != every[0].shape[1:] for t in every):
        raise UsageError("pad_sequence: wanted sequences whose axes agree but for the first")
    n = max(len(t) for t in every)
    rest = ((0, 0),) * (every[0].ndim - 1)
    way = 1 if padding_side == "right" else -1
    padded = [t.pad(((0, n - len(t))[::way], *rest), value=padding_value) for t in every]
    return Tensor.stack(*padded, axis=0 if batch_first else 1)


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Return sequences (length, ...) as a packed batch.

    Raises as `pad_sequence` and `pack_padded_sequence`.
    """
    return pack_padded_sequence(
        pad_sequence(sequences), [len(t) for t in sequences], enforce_sorted=enforce_sorted
    )


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Return the sequences of a packed batch."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), batch_first=True)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False
) -> list[Tensor]:
    """Return the sequences of a padded batch; a length beyond the batch gives all its steps."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [x[i, :n] for i, n in enumerate(_lengths(lengths, x.shape[0]))]


answer_module(globals(), __name__)
