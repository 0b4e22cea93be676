"""The store of winners: the fastest choice that a search found for a kernel, in the disk cache.

An entry is found by the kernel's text, the architecture, the settings of the target, the digest of the
compiler and the width of the beam. With `BEAM=n` the compiler plans by it; without an entry, by the estimate.

Not here: the search (`frontend.tuning.beam`), compiled kernels (`compiler.cache`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from compiler.cache import compiler_digest
from compiler.plan import choice as choices
from hcq.config import config
from hcq.errors import UsageError
from hcq.store import key_of, store

if TYPE_CHECKING:
    from compiler.targets.shared.target import Target

KIND = "winners"


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search."""

    choice: choices.Choice | None
    """The fastest choice; None where none was faster than the estimated plan by `beam.GAIN`."""
    ratio: float
    """Its time, with that of the estimated plan as 1."""
    tries: int
    """Candidates measured, besides the estimated one."""
    failed: int
    """Those of them that did not compile, did not end, or gave other results."""


def get(text: str, target: Target, width: int) -> Found | None:
    """Return the result of the search for the kernel of a text; None if there was none."""
    payload = store(config().cache).get(KIND, _key(text, target, width))
    if payload is None:
        return None
    try:
        chosen, ratio, tries, failed = json.loads(payload)
        return Found(None if chosen is None else choices.from_text(chosen), ratio, tries, failed)
    except (ValueError, UsageError):
        return None  # damaged, though its digest is right: search again


def put(text: str, target: Target, width: int, found: Found) -> None:
    """Store the result of a search. A failure is not an error: the next process searches again."""
    chosen = None if found.choice is None else choices.to_text(found.choice)
    payload = json.dumps([chosen, round(found.ratio, 4), found.tries, found.failed])
    store(config().cache).put(KIND, _key(text, target, width), payload.encode())


def choice_of(text: str, target: Target) -> choices.Choice | None:
    """Return the choice by which to plan a kernel now; None for the estimated plan, as without `BEAM`."""
    width = config().beam
    found = get(text, target, width) if width else None
    return None if found is None else found.choice


def _key(text: str, target: Target, width: int) -> str:
    return key_of(compiler_digest(), target.arch, target.settings, f"BEAM {width}", text)
