"""A pytest plug-in that runs Triton's own tests on a device of this project (`tests.guests.triton_tests`).

The tests ask PyTorch for "cuda". Under this plug-in such tensors lie in host memory, and the launcher of
`interop.triton_backend` stages them. What the tests ask `torch.cuda` is answered by the opened device. No
source of Triton is changed, and none is held here.

Each test adds one JSON line to the file of `--hcq-log` when it starts and one when it ends, so that a test
that ends the process is known.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch
from torch.overrides import TorchFunctionMode

import hcq
from hcq.errors import DeviceFault, HcqError, UnsupportedError
from interop import triton_backend

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from hcq.device import Device

_CUDA: Final = re.compile(r"cuda(:\d+)?$")
_STATE: Final = SimpleNamespace(device=None, log=Path(os.devnull), limit_s=0)


class HostMode(TorchFunctionMode):
    """Tensors that are asked for on "cuda" are made in host memory."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.Tensor.cuda:
            return args[0]
        placed = {name: _host(value) for name, value in (kwargs or {}).items()}
        if function is torch.Tensor.to or function is torch.Generator:
            args = tuple(_host(value) for value in args)
        return function(*args, **placed)


def _host(value: Any) -> Any:
    """Return the host's device for one of CUDA, and any other value as it is."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and _CUDA.match(value) else value


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plug-in."""
    parser.addoption("--hcq-device", default="nv-emu")
    parser.addoption("--hcq-log", default=os.devnull)
    parser.addoption("--hcq-done", default="", help="a file of tests, a line each, that are not run")
    parser.addoption("--hcq-each", type=int, default=0, help="parametrizations of a function; 0: all")
    parser.addoption("--hcq-share", type=float, default=1.0, help="share of the functions")
    parser.addoption("--hcq-limit", type=int, default=120, help="seconds a test may take")


def pytest_configure(config: pytest.Config) -> None:
    """Open the device before the tests are imported: they ask for its properties then."""
    _STATE.log, _STATE.limit_s = Path(config.getoption("--hcq-log")), config.getoption("--hcq-limit")
    _STATE.device = triton_backend.use(config.getoption("--hcq-device"))
    _answer_as_cuda(_STATE.device)
    HostMode().__enter__()  # for the whole process, imports of tests included


def _answer_as_cuda(device: Device) -> None:
    """Let `torch.cuda` speak of `device`, in this process, which runs nothing else."""
    import triton  # noqa: PLC0415 - after the driver was set

    driver = triton.runtime.driver.active
    capability = driver.get_device_capability()
    facts = SimpleNamespace(
        name=device.info.name,
        multi_processor_count=device.info.compute_units,
        warp_size=driver.get_current_target().warp_size,
        gcnArchName=device.info.arch,
        major=capability[0],
        minor=capability[1],
        total_memory=1 << 34,
    )

    def answer(value: Any) -> Any:
        return lambda *_, **__: value

    stream = SimpleNamespace(cuda_stream=0, synchronize=device.sync)
    for name, value in {
        "is_available": answer(value=True),
        "get_device_capability": answer(capability),
        "get_device_name": answer(device.info.name),
        "get_device_properties": answer(facts),
        "current_device": answer(0),
        "device_count": answer(1),
        "set_device": answer(None),
        "empty_cache": answer(None),
        "device": lambda *_: contextlib.nullcontext(),
        "synchronize": lambda *_: device.sync(),
        "current_stream": answer(stream),
    }.items():
        setattr(torch.cuda, name, value)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a share of the functions, and some parametrizations of each, chosen by hashes of their names."""
    each, listed = config.getoption("--hcq-each"), config.getoption("--hcq-done")
    share = config.getoption("--hcq-share")
    done = set(Path(listed).read_text().splitlines()) if listed else set()
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, group in groups.items():
        groups[name] = sorted(group, key=_drawn)[:each] if each else group
    chosen = [name for name in groups if _place(name) < share]
    items[:] = [one for name in chosen for one in groups[name] if one.nodeid not in done]


def _drawn(item: pytest.Item) -> float:
    return _place(item.nodeid)


def _place(name: str) -> float:
    """Return a number in [0, 1) that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / (1 << 32)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Log the start of a test."""
    _log({"test": item.nodeid, "outcome": "started"})
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """End a test that takes too long."""
    signal.signal(signal.SIGALRM, functools.partial(_too_long, item.nodeid))
    signal.alarm(_STATE.limit_s)
    try:
        return (yield)
    finally:
        signal.alarm(0)


class TooLongError(BaseException):
    """A test took longer than `--hcq-limit`. Not an `Exception`, so that no test takes it for its own."""


def _too_long(name: str, *_: object) -> None:
    raise TooLongError(f"{name} took more than {_STATE.limit_s} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[object]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Log the outcome of a test, and bring a faulted device back."""
    report = yield
    if report.failed or report.skipped or report.when == "call":
        error = call.excinfo.value if call.excinfo else None
        outcome = "passed" if error is None or report.passed else "skipped" if report.skipped else kind(error)
        text = "" if error is None else f"{type(error).__name__}: {error}"
        trace = "" if report.passed or report.skipped else str(report.longrepr)[-3000:]
        row = {"test": item.nodeid, "outcome": outcome, "text": text[:1500], "trace": trace}
        _log(row | {"seconds": round(call.duration, 2)})
    if _STATE.device.refusal is not None:
        _STATE.device.recover()
    return report


def kind(error: BaseException) -> str:
    """Return the class of a failure by its exceptions, causes included.

    "refused": a refusal of this project by name; "fault": the device stopped the kernel; "wrong": a
    comparison of the test failed; "too long"; "other": everything else, errors of Triton's compiler included.
    """
    if isinstance(error, TooLongError):
        return "too long"
    for one in _chain(error):
        if isinstance(one, UnsupportedError):
            return "refused"
        if isinstance(one, DeviceFault):
            return "fault"
        if isinstance(one, HcqError):
            return "error"
    return "wrong" if isinstance(error, AssertionError) else "other"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _log(row: dict[str, object]) -> None:
    with _STATE.log.open("a") as file:
        file.write(json.dumps(row | {"time": time.time()}) + "\n")


def pytest_unconfigure() -> None:
    """Close the device."""
    if isinstance(_STATE.device, hcq.Device):
        _STATE.device.close()
