"""Public classes of the product that share their name: one name, one meaning.

A name that starts with an underscore is private to its module, and is left out. So are the classes of packets
and structures in `layouts` folders, whose names come from the vendors' documents.

Not here: names of modules and functions. Next: `source`, the modules that are read.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.walls.source import Module


def shared_names(modules: Mapping[str, Module]) -> dict[str, list[str]]:
    """Return, for each public class name with more than one class, the modules that define one."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in modules.values():
        if "layouts" in module.name.split("."):
            continue
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module.name)
    return {name: owners for name, owners in sorted(found.items()) if len(owners) > 1}
