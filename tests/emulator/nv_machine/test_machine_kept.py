"""What a machine keeps of the images that ran: those used last, whatever their number.

Not here: the search for images (`test_machine_images`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from emulator.nv.engines.images import Images
from emulator.nv.engines.ready import Modules
from emulator.nv.ptx.accuracy import counts
from hcq.errors import UsageError
from tests.emulator.nv_machine.client import Client
from tests.emulator.nv_machine.launching import HEAD, STORE, Launcher, cubin, upload

Make = Callable[..., Client]
MOST = 3


def numbered(number: int) -> str:
    """Return a kernel that stores its parameter plus a number."""
    added = f"add.u32 %r0, %r0, {number}; st.global"
    return STORE.replace("store(", f"store{number}(").replace("st.global", added)


def text(number: int) -> str:
    return HEAD.format(arch="sm_90") + numbered(number)


@pytest.fixture
def launcher(make: Make) -> Launcher:
    """Return a launcher whose machine keeps few images and modules."""
    launcher = Launcher.make(make("sm_90").up())
    machine = launcher.client.machine
    machine.images = Images(most=MOST)
    machine.grids.modules = Modules(machine.grids.settings, most=MOST)
    return launcher


def test_a_machine_keeps_the_images_and_modules_that_ran_last(launcher: Launcher) -> None:
    machine, data = launcher.client.machine, launcher.client.memory(4096)
    codes = [upload(launcher.client, cubin("sm_90", numbered(number))) for number in range(3 * MOST)]
    for turn in range(2):
        for number, code in enumerate(codes):
            launcher.run(code, f"store{number}", struct.pack("<QI", data.va, 10 * turn))
            assert struct.unpack_from("<I", data.view)[0] == 10 * turn + number
            assert len(machine.images) == len(machine.grids.modules) == min(MOST, number + 1 + turn * MOST)


def test_an_image_that_is_registered_stays(launcher: Launcher) -> None:
    machine, data = launcher.client.machine, launcher.client.memory(4096)
    raw = cubin("sm_90", numbered(0))
    machine.images.learn(raw)
    hidden = upload(launcher.client, raw, whole=False)
    for number in range(1, 2 * MOST):
        code = upload(launcher.client, cubin("sm_90", numbered(number)))
        launcher.run(code, f"store{number}", struct.pack("<QI", data.va, 0))
    launcher.run(hidden, "store0", struct.pack("<QI", data.va, 77))
    assert struct.unpack_from("<I", data.view)[0] == 77
    assert len(machine.images) == MOST + 1


def test_modules_are_one_for_equal_ptx_and_the_first_used_is_dropped_first(launcher: Launcher) -> None:
    modules = launcher.client.machine.grids.modules
    first, second = modules.find(text(0), "sm_90"), modules.find(text(1), "sm_90")
    assert modules.find(text(0), "sm_90") is first
    for number in range(2, MOST + 1):
        modules.find(text(number), "sm_90")
    assert modules.find(text(0), "sm_90") is first
    assert modules.find(text(1), "sm_90") is not second
    assert len(modules) == MOST


def test_instructions_of_a_module_that_was_dropped_are_counted_again(launcher: Launcher) -> None:
    modules = launcher.client.machine.grids.modules
    kernel = modules.find(text(0), "sm_90").kernel("store0", {})
    counted = modules.counts(text(0), kernel)
    assert counted == counts(kernel.flat)
    assert modules.counts(text(0), kernel) is counted
    for number in range(1, MOST + 1):
        modules.find(text(number), "sm_90")
    assert modules.counts(text(0), kernel) == counted


def test_ptx_that_is_refused_is_not_kept(launcher: Launcher) -> None:
    modules = launcher.client.machine.grids.modules
    for _ in range(2):
        with pytest.raises(UsageError):
            modules.find(HEAD.format(arch="sm_120"), "sm_90")
    assert not len(modules)
