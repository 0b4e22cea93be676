"""Groups of parameters: each has settings and a learning rate of its own.

A group is a mapping of names to settings, as in PyTorch: `optimiser.param_groups[0]["lr"] = 0.01`.

Not here: the checks of numbers (`frontend.nn.settings`), the optimiser (`optimiser`).
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from compiler.ir.uop import round_to
from frontend.nn.settings import number_within
from frontend.storage import home_of
from frontend.tensor import Tensor
from frontend.views import owns
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from frontend.nn.settings import Setting


def _writes(t: Tensor) -> int | None:
    """Return how often the memory of a tensor was assigned to.

    None where that is not known: without memory of its own, or when captured functions assign to it.
    """
    if not owns(t):
        return None
    recipe: Any = t.recipe
    home = recipe.home if recipe is not None and recipe.home is not None else home_of(t.leaves[0])
    return None if home.replayed else home.writes


class Group(MutableMapping[str, Any]):
    """The parameters of a group, its learning rate `lr` (a tensor), and its settings by name.

    Setting one raises `UsageError` for a value out of range, for an unknown name, and after a step was
    captured; the learning rate may be set at any time, to a number or a tensor of one element.
    """

    def __init__(
        self,
        kind: str,
        params: list[Tensor],
        lr: Tensor | float,
        given: Mapping[str, Any],
        rules: Mapping[str, Setting],
    ) -> None:
        self.kind, self.params, self.rules = kind, params, dict(rules)
        unknown = [name for name in given if name not in rules]
        if unknown:
            raise UsageError(f"{kind} has the settings lr, {', '.join(rules)}; saw {', '.join(unknown)}")
        self.values_ = {name: rules[name].checked(kind, given[name]) for name in rules}
        device = params[0].device
        rate = lr.item() if isinstance(lr, Tensor) else number_within(f"{kind}, lr", lr, 0.0)
        self.lr = Tensor([float(rate)], device=device, requires_grad=False)
        self._rate: float | None = float(rate)
        self._stored = _writes(self.lr)
        """The writes of `lr` when the rate was set."""
        self.initial: float | None = None
        """The learning rate when the first schedule was made."""
        self.counters: dict[str, Tensor] = {}
        """Numbers that change with each step, of shape (1,)."""
        self.captured = False
        """Whether a step was captured: settings are fixed from then on."""

    def set_lr(self, value: Tensor | float) -> None:
        """Store a learning rate in place, so that a captured step uses it.

        Raises `UsageError` for a number below 0 and for other shapes.
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
        self.lr.assign(rate)
        self._rate, self._stored = rate, _writes(self.lr)

    def forget(self) -> None:
        """Take the learning rate from the tensor from now on."""
        self._rate = None

    def rate_now(self) -> float:
        """Return the learning rate: the number that was set, or the tensor's value where others wrote it."""
        known, writes = self._rate, _writes(self.lr)
        if known is not None and writes is not None and writes == self._stored:
            return known
        now = float(self.lr.item())
        if known is None or round_to(known, self.lr.dtype) != now:
            return now
        self._stored = _writes(self.lr)
        return known

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for a copy, whose learning rate is a tensor of its own."""
        return {**vars(self), "_stored": None}

    def number(self, name: str) -> float:
        """Return a setting that is a number, or a flag."""
        found: float = self.values_[name]
        return found

    def __getitem__(self, name: str) -> Any:
        if name == "lr":
            return self.lr
        return self.params if name == "params" else self.values_[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "lr":
            self.set_lr(value)
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
        return iter(["params", "lr", *self.values_])

    def __len__(self) -> int:
        return 2 + len(self.values_)

    def __repr__(self) -> str:
        every = ", ".join([f"{name}={value}" for name, value in self.values_.items()])
        return f"Group({len(self.params)} parameters, lr={self.lr!r}, {every})"
