"""Variants of emulated AMD machines; that the driver opens on each: `tests.drivers.amd.test_amd_bringup`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from emulator.amd.machine import Machines, Variant
from hcq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from emulator.amd.kfd.queues import QueueObject
    from emulator.amd.machine.machine import AmdMachine
    from emulator.amd.machine.runs import QueueRun
    from emulator.simt.engine import Settings


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (None, Variant()),
        ("gfx942", Variant(("gfx942",))),
        ("gfx1201+6.1+checked", Variant(("gfx1201",), "6.1", frozenset({"checked"}))),
        ("bar256+gfx1100", Variant(("gfx1100",), options=frozenset({"bar256"}))),
        ("gfx1100+gfx1100", Variant(("gfx1100", "gfx1100"))),
    ],
)
def test_variants_name_gpus_kernels_and_checks(text: str | None, wanted: Variant) -> None:
    assert Variant.of(text) == wanted


class Idle:
    """Engines of machines whose queues never run."""

    def make(self, machine: AmdMachine, queue: QueueObject) -> QueueRun:
        raise AssertionError(machine, queue)

    def close(self) -> None:
        """Nothing is kept."""

    def endless_waits(self, stuck: Sequence[QueueRun]) -> Mapping[QueueRun, str]:
        raise AssertionError(stuck)


def test_several_gpus_are_one_machine_and_one_gpu_is_a_machine_each_time() -> None:
    checks: list[bool] = []

    def engines(settings: Settings) -> Idle:
        checks.append(settings.checks.global_races)
        return Idle()

    machines = Machines(engines)
    shared = machines("gfx1100+gfx1201")
    assert machines("gfx1100+gfx1201") is shared
    assert [gpu.profile.name for gpu in shared.machine.gpus] == ["gfx1100", "gfx1201"]
    one = machines("gfx1201")
    assert machines("gfx1201+checked") is not one is not machines("gfx1201")
    assert checks == [False, False, True, False]


@pytest.mark.parametrize("text", ["gfx906", "6.1+6.12", "checked+checked", "sm_90"])
def test_variants_that_there_are_not(text: str) -> None:
    with pytest.raises(UsageError, match="gfx1201"):
        Machines(lambda _: Idle())(text)
