"""Guards: the values that a captured function read from outside, compared with the present values.

Values are compared by identity, in one pass of C code for all names. If that fails, numbers, texts and tuples
are compared by value and class: 1, 1.0 and True are different, as are 0.0 and -0.0.

    watch = NameWatch(function, arguments, who="step")
    function(...)
    guards = watch.guards()
    guards.hold() or guards.check()     # at a later call; guards may be None

Not here: finding the names (`found`), modes such as training (`frontend.evaluation.modes`). Next: `captured`.
"""

# ruff: noqa: I001 - lists of names stand in rows

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from itertools import chain, repeat
from operator import getitem, is_
from typing import Any

from frontend.arguments.checks import Size
from frontend.capture.found import (
    GONE, LARGEST, LOST, PLAIN, Held, Read, Search, bytes_of, is_array, values_of,
)  # fmt: skip
from frontend.tensor import Tensor
from hcq.errors import UsageError

_GONES = repeat(GONE)


def same(a: Any, b: Any) -> bool:
    """Return whether two values are one object, or numbers, texts or tuples of one class and equal value."""
    if a is b:
        return True
    if a.__class__ is not b.__class__:
        return False
    if a.__class__ in {tuple, Size}:
        return len(a) == len(b) and all(map(same, a, b))
    number = a.__class__.__module__ == "numpy" and getattr(a, "shape", None) == ()
    return (a.__class__ in PLAIN or number) and repr(a) == repr(b)


class NameGuards:
    """The names that a function read, and their values."""

    def __init__(self, reads: Sequence[Read], held: Sequence[Held], *, who: str) -> None:
        self._held, self.who = list(held), who
        kinds = [2 if not r.item else 1 if isinstance(r.owner, dict) else 0 for r in reads]
        self._rows = [[r for r, k in zip(reads, kinds, strict=True) if k == kind] for kind in range(3)]
        """Items of lists, items of dictionaries, attributes."""
        self._owners = [[r.owner for r in row] for row in self._rows]
        self._keys = [[r.key for r in row] for row in self._rows]
        self._arrays = [h.owner for h in held if is_array(h.owner)]
        owners = [h.owner for h in held if not is_array(h.owner)]
        self._views = [v for o in owners for v in ([o, o.values()] if isinstance(o, dict) else [o])]
        self._remember()

    def _remember(self) -> None:
        """Store the values of `_rows` and the elements of containers, for `hold`."""
        self._values = [[r.value for r in row] for row in self._rows]
        self._elements = list(map(bytes_of, self._arrays))
        self._sizes = list(map(len, self._views))
        self._contents = list(chain.from_iterable(self._views))

    def hold(self) -> bool:
        """Return whether every name still refers to the same object, and arrays have the same bytes.

        If not, `check` compares by value.
        """
        owners, keys, values = self._owners, self._keys, self._values
        try:
            return (
                all(map(is_, map(dict.get, owners[1], keys[1], _GONES), values[1]))
                and (not values[0] or all(map(is_, map(getitem, owners[0], keys[0]), values[0])))
                and (not self._arrays or list(map(bytes_of, self._arrays)) == self._elements)
                and (not values[2] or all(map(is_, map(getattr, owners[2], keys[2], _GONES), values[2])))
                and (
                    not self._views
                    or (
                        list(map(len, self._views)) == self._sizes
                        and all(map(is_, chain.from_iterable(self._views), self._contents))
                    )
                )
            )
        except LOST:
            return False

    def changed(self) -> tuple[str, Any, Any] | None:
        """Return `difference` of the names: None if none changed."""
        return difference(list(chain(*self._rows)), self._held)

    def check(self) -> None:
        """Raise `UsageError` if a name has another value than at the capture; else store the new objects."""
        changed = self.changed()
        if changed is not None:
            text, now, before = changed
            raise UsageError(
                f"{text} was {shown(before)} when {self.who} was captured, and is {shown(now)} now\n"
                "hint: pass what changes as an argument (a number as a tensor), assign() to tensors, or "
                "reset() the function, so that it is captured again"
            )
        self._rows = [[r._replace(value=r.now()) for r in row] for row in self._rows]
        self._held = [h._replace(values=tuple(values_of(h.owner))) for h in self._held]
        self._remember()


def shown(value: Any) -> str:
    """Return the text of a value in an error."""
    if value is GONE:
        return "not there"
    if isinstance(value, Tensor):
        return "another tensor" if value.expr.shape else "another number in a tensor"
    text = repr(value) if value.__class__ in PLAIN else f"a {value.__class__.__name__}"
    return text if len(text) < 100 else f"{text[:96]} ..."


def difference(reads: Sequence[Read], held: Sequence[Held]) -> tuple[str, Any, Any] | None:
    """Return (text, value now, value before) of the first name whose value changed; None: none did."""
    for r in reads:
        now = r.now()
        if not same(now, r.value):
            return f"`{r.text}`", now, r.value
    for h in held:
        now = tuple(values_of(h.owner))
        if len(now) != len(h.values):
            parts = 2 if isinstance(h.owner, dict) else 1
            return f"the number of elements of `{h.text}`", len(now) // parts, len(h.values) // parts
        for one, other in zip(now, h.values, strict=True):
            if not same(one, other):
                return f"an element of `{h.text}`", one, other
    return None


class NameWatch:
    """The names that a function reads, before and after it runs."""

    def __init__(self, function: Any, arguments: Any, *, who: str) -> None:
        self._function, self._arguments, self.who = function, arguments, who
        self._before = Search(function, arguments)
        self._numbers = _drawn(self._before)
        self._after: tuple[list[Read], list[Held]] = [], []
        """The names and containers that the function reads, after `effect`."""
        tensors = [r.value for r in (*self._before.reads.values(), *self._before.bound)]
        self._known = {id(v): v for v in chain(tensors, *[h.values for h in self._before.held.values()])}

    def tensors(self, *, floats: bool = True) -> list[Tensor]:
        """Return the tensors that the function can have read, only those of a float type unless told so."""
        known = [t for t in self._known.values() if isinstance(t, Tensor)]
        return [t for t in known if t.expr.dtype.is_float or not floats]

    def changed(self) -> str:
        """Return what changed since the last `effect`, as a text; "": nothing."""
        found = difference(*self._after)
        return f"{found[0]} was {shown(found[2])}, and is {shown(found[1])}" if found else ""

    def effect(self) -> str:
        """Return what the function, which just ran, did that a replay would not repeat; "": nothing.

        It prints, reads a clock or an iterator, draws random numbers on the host, or changed an object.
        """
        after = Search(self._function, self._arguments)
        self._after = list(after.reads.values()), [h for h in after.held.values() if h.read]
        if after.effects or after.iterators:
            return f"it uses `{[*after.effects, *after.iterators][0]}`, which a replay would not"
        if after.large:
            return f"it reads `{after.large[0]}`, an array of more than {LARGEST} bytes"
        if _drawn(self._before) != self._numbers:
            return "it draws random numbers on the host, which a replay would repeat"
        before = self._before
        changed = difference([*before.reads.values(), *before.bound], list(before.held.values()))
        return f"it changes {changed[0]}" if changed else ""

    def guards(self) -> NameGuards | None:
        """Return the guards of the names that the function read, after it ran; None if there are none.

        Raises `UsageError` if the function stored a computed tensor outside, reads an iterator, changed a
        value that it reads, or drew random numbers on the host: a replay would do nothing of this.
        """
        after = Search(self._function, self._arguments)
        kept = [(r.text, r.value) for r in after.bound]
        kept += [(_place(h, n), v) for h in after.held.values() for n, v in enumerate(h.values)]
        for text, value in kept:
            if isinstance(value, Tensor) and id(value) not in self._known:
                raise UsageError(
                    f"{self.who} computes a tensor that is kept outside, in `{text}`, where replays would "
                    "not update it\n"
                    "hint: return it, or assign it to a tensor made before"
                )
        if after.iterators:
            raise UsageError(
                f"{self.who} reads the iterator `{after.iterators[0]}`, which replays would not advance\n"
                "hint: take what is next outside, and pass it as an argument"
            )
        if _drawn(self._before) != self._numbers:
            raise UsageError(
                f"{self.who} draws random numbers on the host, which a replay would repeat\n"
                "hint: use Tensor.rand or randn, which draw anew, or pass the numbers as a tensor"
            )
        if after.large:
            raise UsageError(
                f"{self.who} reads `{after.large[0]}`, an array of more than {LARGEST} bytes, whose "
                "elements no replay compares\nhint: make it a Tensor outside, or pass it as an argument"
            )
        typed = [r for r in self._before.reads.values() if r.typed and _settled(r.value)]
        numbers = [  # a larger array may be data that the function keeps beside its tensors
            h
            for h in self._before.held.values()
            if h.read and all(map(_settled, h.values))
            if not is_array(h.owner) or len(bytes_of(h.owner)) <= 8
        ]
        changed = difference(typed, numbers)
        if changed is not None:
            text, now, before = changed
            raise UsageError(
                f"{self.who} reads {text} and changes it itself, from {shown(before)} to {shown(now)}: a "
                "replay would not\n"
                "hint: keep it in a tensor and assign() to that, or change it outside and pass it in"
            )
        held = [h for h in after.held.values() if h.read]
        return NameGuards(list(after.reads.values()), held, who=self.who) if after.reads or held else None


def _settled(value: Any) -> bool:
    return value.__class__ in PLAIN or isinstance(value, Tensor)


def _place(h: Held, number: int) -> str:
    """Return the name of the element of a container, or of an object's attribute, by its number."""
    key = list(h.owner)[number % len(h.owner)] if isinstance(h.owner, dict) else number
    return f"{h.text}.{key}".lstrip(".") if h.attributes else f"{h.text}[{key!r}]"


def _drawn(search: Search) -> list[Any]:
    """Return the states of the host's generators of random numbers that a function can use."""
    found: list[Any] = [random.getstate()]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        found += [part if part.__class__ in PLAIN else part.tolist() for part in numpy.random.get_state()]
    for source in search.sources:
        bits = getattr(source, "bit_generator", None) or getattr(source, "_bit_generator", source)
        known = isinstance(source, random.Random)
        found.append(source.getstate() if known else repr(getattr(bits, "state", None)))
    return found
