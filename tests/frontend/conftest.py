"""Room for what a test makes: limits that all tests of a process reach together cut none in its midst."""

from __future__ import annotations

import pytest

from frontend import expr, lazy, plan

ROOM = 10_000


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test keep its plans, expressions and sites of numbers, however many others left."""
    kept = max(len(plan._RUNNING), len(plan._MANY), len(expr.TABLE), len(lazy._sites))
    for module, name in ((plan, "PLAN_LIMIT"), (expr, "TABLE_LIMIT"), (lazy, "SITE_LIMIT")):
        monkeypatch.setattr(module, name, max(getattr(module, name), kept + ROOM))
