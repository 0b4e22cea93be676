"""Groups of an optimiser: parameters, their learning rate and settings, checked, and items of programs.

Not here: what settings may be (`frontend.arguments.settings`), groups of optimisers of programs (`base`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from compiler.dtype import dtypes
from compiler.ir.uop import round_to
from frontend.arguments.settings import GroupSetting, number_within
from frontend.evaluation.plan import CAPTURE
from frontend.evaluation.storage import home_of
from frontend.evaluation.views import owns
from frontend.tensor import Tensor
from hcq.errors import UsageError
from hcq.names import nearest


def _writes(t: Tensor) -> int | None:
    """Return how often the memory of a tensor was assigned to.

    None if that is not counted: the tensor has no memory of its own, or captured functions assign to it.
    """
    if not owns(t):
        return None
    recipe: Any = t.recipe
    home = recipe.home if recipe is not None and recipe.home is not None else home_of(t.leaves[0])
    return None if home.replayed else home.writes


class Group(MutableMapping[str, Any]):
    """The parameters of a group, its learning rate `lr` (a tensor), and its settings by name.

    It is a mapping of "params", "lr" and the settings. `group["lr"]` is a number, inside a captured function
    the tensor; a number of a pair has its own name, too: `group["b1"]` is `group["betas"][0]`.

    Setting an item raises `UsageError` for a value out of range, for a name that is almost that of a setting,
    and, but for "lr", after a step was captured. "lr" takes a number or a tensor of one element. Items of
    other names, as programs have them in groups, have no effect.
    """

    def __init__(
        self,
        kind: str,
        params: list[Tensor],
        lr: Tensor | float,
        given: Mapping[str, Any],
        rules: Mapping[str, GroupSetting],
        *,
        own: Iterable[str] = (),
    ) -> None:
        self.kind, self.params, self.rules = kind, params, dict(rules)
        self._places = {
            part: (name, i)
            for name, rule in rules.items()
            for i, part in enumerate(getattr(rule, "parts", ()))
        }
        """Name of a number of a pair -> (name of the pair, its index)."""
        named, values = {**rules, **self._places}, dict(given)
        self.more: dict[str, Any] = {}
        """Items that have no effect here: of a loaded state, of schedules, and `own` ones of the program."""
        self.more.update({n: values.pop(n) for n in own if n not in named and not _misspelt(n, named)})
        unknown = [name for name in values if name not in named]
        if unknown:
            raise UsageError(f"{kind} has the settings lr, {', '.join(named)}; saw {', '.join(unknown)}")
        for part, (name, i) in self._places.items():
            if part in values:
                values[name] = _with(values[name], i, values.pop(part))
        self.values_ = {name: rules[name].checked(kind, values[name]) for name in rules}
        device = params[0].device
        rate = lr.item() if isinstance(lr, Tensor) else number_within(f"{kind}, lr", lr, 0.0)
        self.exact = dtypes.float64 if any(p.dtype is dtypes.float64 for p in params) else dtypes.float32
        """The dtype of numbers that each step uses."""
        self.source = lr if isinstance(lr, Tensor) else None
        """The tensor that was given as the learning rate, which each step reads; None: a number was."""
        self.lr = Tensor([float(rate)], dtype=self.exact, device=device, requires_grad=False)
        self._rate: float | None = float(rate)
        self._stored = _writes(self.lr)
        """`_writes(lr)` when `_rate` was stored."""
        self.initial: float | None = self.more.pop("initial_lr", None)
        """The learning rate when the first schedule was made; None before."""
        self.known: list[int] = []
        """ids of `params` when the optimiser read them; a program may have changed the list since then."""
        self.given = params
        """All parameters that were given, also those that no step updates."""
        self.counters: dict[str, Tensor] = {}
        """Name -> number that changes with each step, of shape (1,), for the parameter that is moved."""
        self.captured = False
        """Whether a step was captured: settings are fixed from then on."""

    def set_lr(self, value: Tensor | float) -> None:
        """Store a learning rate in place, so that a captured step uses it.

        Raises `UsageError` for a number below 0 and for other shapes, `UsageTypeError` for no number.
        """
        if value is self.lr:  # as after `optimiser.lr *= 0.5`
            self.forget()
            return
        if isinstance(value, Tensor):
            if value.numel() != 1:
                raise UsageError(f"lr: wanted one number, saw the shape {value.shape}")
            self.lr.assign(value.detach().to(self.lr.device).cast(self.lr.dtype).reshape(1))
            self.forget()
            return
        rate = float(number_within(f"{self.kind}, lr", value, 0.0))
        if self.source is not None:
            self.source.fill_(rate)
        self.lr.assign(rate)
        self._rate, self._stored = rate, _writes(self.lr)

    def forget(self) -> None:
        """Forget the number that was set, so that `rate_now` reads the tensor."""
        self._rate = None

    def rate_now(self) -> float:
        """Return the learning rate: the number that was set, or the value of `lr` if it was assigned to.

        Reading the value waits for the device.
        """
        if self.source is not None:
            return float(self.source.item())
        known, writes = self._rate, _writes(self.lr)
        if known is not None and writes is not None and writes == self._stored:
            return known
        now = float(self.lr.item())
        if known is None or round_to(known, self.lr.dtype) != now:
            return now
        self._stored = _writes(self.lr)
        return known

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for a copy.

        The copy of `lr` is another tensor with other counts of writes.
        """
        return {**vars(self), "_stored": None}

    def number(self, name: str) -> float:
        """Return a setting, which is a number or a bool."""
        found: float = self[name]
        return found

    def __getitem__(self, name: str) -> Any:
        if name == "lr":
            if self.source is not None:
                return self.source
            return self.lr if CAPTURE.now is not None else self.rate_now()
        if name in self._places:
            pair, i = self._places[name]
            return self.values_[pair][i]
        if name == "initial_lr" and self.initial is not None:
            return self.initial
        return self.params if name == "params" else {**self.more, **self.values_}[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "lr":
            self.source = value if isinstance(value, Tensor) and CAPTURE.now is None else None
            self.set_lr(value)
            return
        if name in self._places:
            name, i = self._places[name]
            value = _with(self.values_[name], i, value)
        if name == "initial_lr":
            self.initial = float(value)
            return
        if name == "params":
            self.params[:] = value
            return
        if name not in self.rules and not _misspelt(name, self.rules):
            self.more[name] = value
            return
        if name not in self.rules:
            raise UsageError(f"{self.kind} has the settings lr, {', '.join(self.rules)}; saw {name}")
        if self.captured:
            raise UsageError(
                f"{self.kind}, {name}: a captured step uses {self.values_[name]} and cannot change\n"
                "hint: make another optimiser and capture its step; only the learning rate may change later"
            )
        self.values_[name] = self.rules[name].checked(self.kind, value)

    def __delitem__(self, name: str) -> None:
        raise UsageError(f"{self.kind}: the setting {name} cannot be removed")

    def __iter__(self) -> Iterator[str]:
        first = [] if self.initial is None else ["initial_lr"]
        return iter(["params", "lr", *self.values_, *first, *self.more])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __repr__(self) -> str:
        every = ", ".join([f"{name}={value}" for name, value in self.values_.items()])
        return f"Group({len(self.params)} parameters, lr={self.lr!r}, {every})"


def _misspelt(name: str, known: Iterable[str]) -> str:
    return nearest(name, known, alike=0.8)


def _with(pair: Any, i: int, value: Any) -> Any:
    """Return a pair with another number; `pair` itself, which a check refuses, if it is none."""
    return (
        tuple(value if k == i else v for k, v in enumerate(pair)) if isinstance(pair, (tuple, list)) else pair
    )
