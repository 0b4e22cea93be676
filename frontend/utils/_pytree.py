"""PyTorch's functions on nested containers, by the name under which libraries import them.

Containers are lists, tuples, named tuples, `dict`, `OrderedDict`, `defaultdict`, `deque` and classes of
`register_pytree_node`; all else is a leaf, None and classes derived from those too.

Not here: the containers of a captured function (`frontend.containers`).
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "PyTree", "TreeSpec", "register_pytree_node", "tree_flatten", "tree_leaves", "tree_map", "tree_map_only",
    "tree_structure", "tree_unflatten",
]  # fmt: skip

PyTree = Any


def _entries(value: Any) -> tuple[list[Any], Any]:
    return list(value.values()), list(value)


_CLASSES: Final[dict[type, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]]] = {
    list: (lambda v: (v, None), lambda v, _: list(v)),
    tuple: (lambda v: (v, None), lambda v, _: tuple(v)),
    dict: (_entries, lambda v, keys: dict(zip(keys, v, strict=True))),
    OrderedDict: (_entries, lambda v, keys: OrderedDict(zip(keys, v, strict=True))),
    defaultdict: (
        lambda v: (list(v.values()), (v.default_factory, list(v))),
        lambda v, context: defaultdict(context[0], zip(context[1], v, strict=True)),
    ),
    deque: (lambda v: (v, v.maxlen), lambda v, length: deque(v, maxlen=length)),
}
"""For each class how its values and its context are got, and how these make a container again."""


def register_pytree_node(cls: type, flatten_fn: Any, unflatten_fn: Any, **_names: Any) -> None:
    """Make a class a container by `flatten_fn(x) -> (values, context)`, `unflatten_fn(values, context)`."""
    _CLASSES[cls] = (flatten_fn, unflatten_fn)


@dataclass(frozen=True)
class TreeSpec:
    """The form of a tree: its class (None of a leaf), its context, and the forms of its values."""

    type: type | None
    context: Any
    children_specs: list[TreeSpec]

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        return 1 if self.type is None else sum(spec.num_leaves for spec in self.children_specs)

    def is_leaf(self) -> bool:
        """Return whether it is the form of one leaf."""
        return self.type is None

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """Return the parts of a tree at the leaves of this form. Raises `ValueError` for another form."""
        if self.type is None:
            return [tree]
        values, context = _values(tree) if type(tree) is self.type else ([], None)
        if isinstance(tree, dict) and len(values) == len(self.children_specs):
            keys = self.context[1] if self.type is defaultdict else self.context
            values = [tree[key] for key in keys if key in tree]
        elif context != self.context:
            values = []
        if len(values) != len(self.children_specs):
            form = f"{self.type.__name__} of {len(self.children_specs)} values, context {self.context}"
            raise ValueError(f"wanted a {form}, seen {tree!r}")
        pairs = zip(self.children_specs, values, strict=True)
        return [part for spec, value in pairs for part in spec.flatten_up_to(value)]


def _values(tree: Any) -> tuple[list[Any], Any]:
    """Return the values and the context of a container."""
    if type(tree) not in _CLASSES:
        return list(tree), type(tree)  # a named tuple
    values, context = _CLASSES[type(tree)][0](tree)
    return list(values), context


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """Return the leaves in order, and the form; what `is_leaf` accepts is not divided."""
    named = isinstance(tree, tuple) and hasattr(tree, "_fields")
    if (is_leaf is not None and is_leaf(tree)) or not (named or type(tree) in _CLASSES):
        return [tree], TreeSpec(None, None, [])
    values, context = _values(tree)
    parts = [tree_flatten(value, is_leaf) for value in values]
    return [leaf for part, _ in parts for leaf in part], TreeSpec(type(tree), context, [s for _, s in parts])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """Return a tree of this form with these leaves. Raises `ValueError` for another number of them."""
    given = list(leaves)
    if len(given) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten: wanted {treespec.num_leaves} leaves, seen {len(given)}")
    rest = iter(given)

    def made(spec: TreeSpec) -> Any:
        if spec.type is None:
            return next(rest)
        values = [made(child) for child in spec.children_specs]
        return _CLASSES[spec.type][1](values, spec.context) if spec.type in _CLASSES else spec.type(*values)

    return made(treespec)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """Return the leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """Return the form."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(
    func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """Return a tree of the same form with `func` of each leaf, and of what is at its place in `rests`.

    Raises `ValueError` if one of `rests` has another form.
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    return tree_unflatten(map(func, leaves, *map(spec.flatten_up_to, rests)), spec)


def tree_map_only(of: Any, func: Callable[[Any], Any], tree: Any) -> Any:
    """Return a tree of the same form with `func` of each leaf of a class, or of one of several."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, of) else leaf, tree)
