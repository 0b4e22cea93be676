"""Every doubtful value and preset computes on an emulated GPU without the sandbox's filter."""

from __future__ import annotations

import contextlib

import pytest

from compiler.targets.nvptx import assembler
from drivers.nv.quirks import ALTERNATIVES, parse
from drivers.shared.choices import value_text
from emulator.devices import NV
from hcq.config import override
from hcq.device import Device
from hcq.driver import BufferSpec, Place
from hcq.errors import DeviceFault, UnsupportedError
from tests.limits import HANG_S
from tools.bringup.nv.kernels import TOKEN, image

pytestmark = pytest.mark.skipif(not assembler.available(), reason="neither nvJitLink nor ptxas is installed")
HOPPER, BLACKWELL = "sm_90+580+native", "sm_120+595+native"
PRESETS = [
    ("hopper-launch", HOPPER),
    ("hopper-launch-rm", HOPPER),
    ("tinygrad-blackwell", BLACKWELL),
    ("nvk-rm", BLACKWELL),
]
REFUSED: dict[str, type[Exception]] = {"qmd_type=0": DeviceFault, "channel_class=c96f": UnsupportedError}
VALUES = [f"{name}={value_text(value)}" for name, values in ALTERNATIVES.items() for value in values[1:]]


def run(variant: str, text: str) -> None:
    """Copy in both directions, and run a kernel that stores a token."""
    with contextlib.closing(Device(NV.open(0, variant, choices=parse(text)))) as device:
        out = device.alloc(4096, BufferSpec(place=Place.HOST, host_visible=True, coherent=True))
        video, back = (
            device.alloc(1 << 21),
            device.alloc(4096, BufferSpec(place=Place.HOST, host_visible=True)),
        )
        program = device.load(image("store", device.info.arch))
        one, other = device.compute, device.copies[0]
        done = one.submit(one.record().exec(program, program.args(out), groups=(1, 1, 1), threads=(1, 1, 1)))
        commands = other.record().copy(video, out, size=4096).copy(back, video, size=4096)
        other.submit(commands, after=[done]).wait(timeout_s=HANG_S)
        assert bytes(back.host()[:4]) == TOKEN.to_bytes(4, "little")


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("preset", "variant"), PRESETS)
def test_a_preset_runs_where_it_is_known_to_work(preset: str, variant: str) -> None:
    run(variant, preset)


@pytest.mark.sampled(9)
@pytest.mark.slow
@pytest.mark.parametrize("text", VALUES)
def test_every_value_runs_or_is_refused(text: str) -> None:
    if text in REFUSED:
        with pytest.raises(REFUSED[text]):
            run(HOPPER, text)
    else:
        run(HOPPER, text)


@pytest.mark.parametrize("place", ["video", "system", "pages"])
def test_a_ring_of_any_size_has_room_for_its_entries(place: str) -> None:
    """64 MiB of commands have 262,144 entries: more than a usual block of ring entries holds."""
    with override(ring_bytes=1 << 26):
        run(HOPPER, f"ring={place}")
