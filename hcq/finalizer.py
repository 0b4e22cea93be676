"""Finalizers without Python code, so that no signal arrives in one.

Python runs the handler of a signal as a function begins. In a `__del__` the KeyboardInterrupt of a Ctrl-C is
then printed and dropped, and what the finalizer would have done is not done. A class whose `__del__` is
`DROP` has an attribute `_drop` instead: a function of C without arguments, called as the object is freed.

Not here: what is closed with a warning when it is dropped (`device`), which is more than one call.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

DROP: Final[Any] = property(attrgetter("_drop"))
"""The value of `__del__`: Python looks it up, which gives `_drop`, and calls that."""
NOTHING: Final = bool
"""The `_drop` of an object that owns nothing."""
