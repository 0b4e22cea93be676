"""Scopes of accesses to memory: how far a load, store or cache instruction acts, by the bits of its encoding.

Not here: the accesses (`memory`), what they order (`orders`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivers.emu.simt.addresses import NARROW, STRONG

if TYPE_CHECKING:
    from drivers.amd.emu.isa.instruction import Instruction

AGENT = 2
"""The first scope of gfx12 that reaches other compute units."""


def reaches_agent(i: Instruction, family: str) -> bool:
    """Return whether a load, a store or a cache instruction acts at the agent's scope or beyond.

    gfx11 encodes no scopes: its bits for all scopes beyond a wave count.
    """
    if family == "gfx9":
        return bool(i.get("sc1"))
    return bool(i.get("glc") or i.get("dlc") or i.get("scope") >= AGENT)


def reach(i: Instruction, family: str) -> int:
    """Return who sees a load or store: STRONG for the agent, STRONG | NARROW for the workgroup, else 0."""
    if reaches_agent(i, family):
        return STRONG
    return STRONG | NARROW if i.get("sc0") or i.get("scope") else 0
