"""PyTorch's `_parameters`, `_buffers` and `_modules` of a module, by which programs read and change it.

Not here: what these are (`module`), and how they are found (`nn.state.models`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any


class Members(MutableMapping[str, Any]):
    """Attributes of one kind of a module by name. Setting or deleting an item does so to the attribute.

    `read` returns them; `join` is called with the name and value of a new one. An attribute that is None is
    an item that is not counted. Raises `KeyError` for other names.
    """

    def __init__(
        self,
        module: Any,
        read: Callable[[], Mapping[str, Any]],
        join: Callable[[str, Any], None] = lambda _name, _value: None,
    ) -> None:
        self._module, self._read, self._join = module, read, join

    def __getitem__(self, name: str) -> Any:
        found = self._read()
        return found[name] if vars(self._module).get(name, found) is not None else None

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)
        self._join(name, value)

    def __delitem__(self, name: str) -> None:
        self[name]
        delattr(self._module, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(dict(self))
