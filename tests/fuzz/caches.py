"""`python -m tests.fuzz.caches [--cases 700] [--first 0] [--show SEED] [--json FILE]`.

It damages the cache of compiled code at random, and looks every entry up again, through the compiler, the cpu
device and the engine of emulated GPUs. Each lookup must return the code that a compilation gives, without an
error or a hang; a warning is allowed only for folders of other users. Damaged entries that can be repaired
must be valid afterwards. A case applies one to five damages (`tests.fuzz.damages`), in some cases while
threads read and write the same entries. A seed always gives the same case; a failing case is shrunk and
printed as a test.

Not here: the damages (`damages`).
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from compiler import cache
from compiler.compile import compile_kernel, compile_uncached, forget
from compiler.dtype import dtypes
from compiler.image import to_bytes
from compiler.ir.index import loop
from compiler.ir.ops import Ops
from compiler.ir.serialize import kernel_key
from compiler.ir.uop import const, uop
from compiler.targets import target_of
from drivers.cpu.host import FUNCTIONS
from drivers.cpu.image import compile_object, nothing_from_outside, processor_code, processor_key
from drivers.cpu.link import HostImage
from drivers.cpu.native import translate
from drivers.kernel import LinuxKernel
from emulator.ir import jit
from hcq.config import override
from hcq.errors import CacheWarning
from hcq.store import Store
from tests.fuzz.damages import DAMAGES, Entry, Scene
from tools.arguments import command, natural, output, positive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compiler.ir.uop import UOp

ARCH: Final = f"{os.uname().machine}-00000000"
HANG_S: Final = 120.0
"""Seconds after which a lookup counts as hung; no lookup waits for anything."""
_WARNED: Final = ("others", "elsewhere")
"""Words in the names of damages that cause a warning."""


class Subject(Protocol):
    """Code that the product stores in its cache."""

    @property
    def entry(self) -> Entry:
        """The entry that the cache should hold."""

    def obtain(self, root: Path) -> bytes:
        """Get the code from the product with its cache at `root`; it should equal the entry's payload."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of the compiler."""

    ast: UOp
    entry: Entry

    def obtain(self, root: Path) -> bytes:
        """See `Subject`."""
        forget()
        with override(cache=root):
            return to_bytes(compile_kernel(self.ast, ARCH))


@dataclass(frozen=True, slots=True)
class Translation:
    """An object of the emulated GPU's engine."""

    text: str
    entry: Entry

    def obtain(self, root: Path) -> bytes:
        """See `Subject`."""
        return jit.ObjectCache(root).object(self.text, jit.host(), optimise=False)


@dataclass(frozen=True, slots=True)
class Processor:
    """The command processor of the cpu device."""

    entry: Entry

    def obtain(self, root: Path) -> bytes:
        """See `Subject`. The mapped code must equal the mapped code of the entry's object."""
        with override(cache=root):
            code = processor_code(LinuxKernel())
        try:
            start = code.span[0]
            wanted = HostImage(self.entry.payload, os.uname().machine).at(start, nothing_from_outside)
            return self.entry.payload if ctypes.string_at(start, len(wanted)) == wanted else b""
        finally:
            code.close()


def _kernel(number: float, size: int) -> Kernel:
    i = loop(0, size)
    place = [uop(Ops.BUFFER, dtypes.float32, (), slot) for slot in (0, 1)]
    value = uop(
        Ops.ADD, dtypes.float32, (uop(Ops.LOAD, dtypes.float32, (place[1], i)), const(number, dtypes.float32))
    )
    ast = uop(Ops.SINK, dtypes.void, (uop(Ops.STORE, dtypes.void, (place[0], i, value)),))
    key = cache.key_of(kernel_key(ast), ARCH, f"{target_of(ARCH).settings} O0")
    return Kernel(ast, Entry("kernels", key, to_bytes(compile_uncached(ast, ARCH))))


def _translation(number: int) -> Translation:
    text = f"define i32 @answer() {{\n  ret i32 {number}\n}}\n"
    key = jit.key(text, jit.host(), optimise=False)
    return Translation(text, Entry("emu", key, jit.compile_ir(text, jit.host(), optimise=False)))


def subjects() -> list[Subject]:
    """Compile the subjects of all cases without a cache: six kernels, two translations, the processor."""
    machine = os.uname().machine
    payload = compile_object(translate(FUNCTIONS, machine))
    kernels = [_kernel(number, size) for number in (1.0, 2.0, 3.0) for size in (64, 100)]
    return [
        *kernels,
        _translation(7),
        _translation(8),
        Processor(Entry("cpu", processor_key(machine), payload)),
    ]


@dataclass(frozen=True, slots=True)
class Step:
    """One damage to one subject, with the seed of its random choices."""

    damage: str
    subject: int
    seed: int


def case(seed: int) -> tuple[list[Step], bool]:
    """Return the steps of a seed, and whether threads use the cache at the same time."""
    rng = random.Random(seed)  # noqa: S311 - a seed repeats it
    names, busy = sorted(DAMAGES), rng.random() < 0.1
    steps = [
        Step(rng.choice(names), min(rng.randrange(9), rng.randrange(9)), rng.randrange(1 << 30))
        for _ in range(rng.choice((1, 2, 3, 4, 5)))
    ]
    return steps, busy


def run(steps: Sequence[Step], made: Sequence[Subject], *, busy: bool = False) -> list[str]:
    """Apply the steps to a new cache, look the entries up, and return the failures as text."""
    home = Path(tempfile.mkdtemp(prefix="hcq-fuzz-"))
    try:
        root = home / "above" / "cache"
        for subject in made:
            Store(root).put(subject.entry.kind, subject.entry.key, subject.entry.payload)
        return _damaged(root, steps, made) if not busy else _busy(root, steps, made)
    finally:
        for folder, names, _ in os.walk(home):
            for name in names:
                if not Path(folder, name).is_symlink():  # never the target of a link
                    Path(folder, name).chmod(0o700)
        shutil.rmtree(home)


def _damaged(root: Path, steps: Sequence[Step], made: Sequence[Subject]) -> list[str]:
    _damage_all(root, steps, made)
    numbers = _looked_up(steps, made)
    wrong = _look_up(
        root, made, numbers, trusted=not any(word in step.damage for step in steps for word in _WARNED)
    )
    if not wrong and all(DAMAGES[step.damage].mended for step in steps):
        for number in numbers:
            entry = made[number].entry
            if Store(root).get(entry.kind, entry.key) != entry.payload:
                wrong.append(f"subject {number} was not repaired")
    return wrong


def _damage_all(root: Path, steps: Sequence[Step], made: Sequence[Subject]) -> None:
    entries = [subject.entry for subject in made]
    for step in steps:
        rng = random.Random(step.seed)  # noqa: S311 - a seed repeats it
        scene = Scene(root, entries, entries[step.subject % len(entries)], rng)
        try:
            DAMAGES[step.damage].do(scene)
        except OSError:
            continue  # an earlier damage removed the file or folder


def _looked_up(steps: Sequence[Step], made: Sequence[Subject]) -> list[int]:
    """Return the subjects that a case looks up: those that it damages, and two others."""
    near = (steps[0].seed % (len(made) - 1), steps[-1].seed // 3 % (len(made) - 1))
    return sorted({step.subject % len(made) for step in steps} | set(near))


def _look_up(root: Path, made: Sequence[Subject], numbers: Sequence[int], *, trusted: bool) -> list[str]:
    """Look up every subject in `numbers` twice; return the failures as text."""
    wrong: list[str] = []
    for number in [*numbers, *numbers]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            one = made[number]
            try:
                found: object = _in_time(partial(one.obtain, root), one.entry.path(root))
            except Exception as error:  # noqa: BLE001 - any exception is a finding
                found = error
        if found != made[number].entry.payload:
            what = f"{type(found).__name__}: {found}" if isinstance(found, Exception) else "wrong code"
            wrong.append(f"subject {number}: {what}"[:300])
        unwanted = [w for w in caught if trusted or not issubclass(w.category, CacheWarning)]
        wrong += [f"subject {number}: {w.category.__name__}: {w.message}"[:300] for w in unwanted]
    return list(dict.fromkeys(wrong))


def _is_fifo(path: Path) -> bool:
    try:
        return path.is_fifo()
    except PermissionError:
        return False  # in a closed folder, where the product cannot open it, either


def _in_time(work: Callable[[], bytes], path: Path) -> bytes:
    """Return the result of `work`; `TimeoutError` if it hangs on a FIFO at `path`."""
    if not _is_fifo(path):
        return work()
    out: list[bytes | Exception] = []

    def run_it() -> None:
        try:
            out.append(work())
        except Exception as error:  # noqa: BLE001 - raised again below
            out.append(error)

    thread = threading.Thread(target=run_it, daemon=True)
    thread.start()
    thread.join(HANG_S)
    if not out:
        raise TimeoutError(f"no result in {HANG_S:.0f} s")
    if isinstance(out[0], Exception):
        raise out[0]
    return out[0]


def _busy(root: Path, steps: Sequence[Step], made: Sequence[Subject]) -> list[str]:
    """Apply the steps while two threads write entries and this thread reads; then read again."""
    stop = threading.Event()
    failed: list[str] = []

    def write(seed: int) -> None:
        rng, store = random.Random(seed), Store(root)  # noqa: S311 - the same
        while not stop.is_set():
            entry = rng.choice(made).entry
            store.put(entry.kind, entry.key, entry.payload)

    def damage() -> None:
        for step in [*steps] * 4:
            _damage_all(root, [step], made)

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - any exception is a finding
            failed.append(f"a thread: {type(error).__name__}: {error}"[:300])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        works: list[Callable[[], None]] = [lambda: write(1), lambda: write(2), damage]
        threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            wrong = _look_up(root, made, _looked_up(steps, made), trusted=False)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    return [*wrong, *failed, *_look_up(root, made, _looked_up(steps, made), trusted=False)]


def shrink(steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """Return a part of the steps that still fails, and from which no single step can be removed."""
    left = list(steps)
    at = 0
    while at < len(left):
        fewer = left[:at] + left[at + 1 :]
        if fewer and fails(fewer):
            left = fewer
        else:
            at += 1
    return left


def as_test(seed: int, steps: Sequence[Step], wrong: Sequence[str], *, busy: bool) -> str:
    """Return the text of a test that repeats a failure."""
    lines = [f"    {step!r}," for step in steps]
    return "\n".join(
        [
            f"def test_cache_case_{seed}() -> None:",
            *[f"    # {line}" for line in wrong],
            "    steps = [",
            *["    " + line for line in lines],
            "    ]",
            f"    assert run(steps, subjects(), busy={busy}) == []",
            "",
        ]
    )


def explore(first: int, count: int, made: Sequence[Subject]) -> tuple[int, dict[int, str]]:
    """Run cases; return the number of damages, and by seed the shrunk test of each failure."""
    damages, failed = 0, {}
    began = time.monotonic()
    for seed in range(first, first + count):
        steps, busy = case(seed)
        damages += len(steps)
        wrong = run(steps, made, busy=busy)
        if wrong:
            small = shrink(steps, lambda fewer, busy=busy: bool(run(fewer, made, busy=busy)))  # type: ignore[misc]  # a default binds the value
            failed[seed] = as_test(seed, small, run(small, made, busy=busy) or wrong, busy=busy)
            print(failed[seed], flush=True)
        if sys.stderr.isatty() or seed + 1 == first + count or not (seed + 1 - first) % 100:
            text = f"\r{seed + 1 - first} of {count} cases, {damages} damages, {len(failed)} failed"
            print(f"{text}, {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return damages, failed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = command("tests.fuzz.caches", __doc__)
    parser.add_argument("--cases", type=positive, default=700, metavar="N", help="(default 700)")
    parser.add_argument("--first", type=natural, default=0, metavar="SEED", help="the first seed (default 0)")
    parser.add_argument("--show", type=natural, metavar="SEED", help="print the steps of one case and stop")
    parser.add_argument("--json", type=output, metavar="FILE", help="write the failures by seed")
    options = parser.parse_args(argv)
    if options.show is not None:
        steps, busy = case(options.show)
        print(as_test(options.show, steps, [], busy=busy))
        return 0
    damages, failed = explore(options.first, options.cases, subjects())
    if options.json is not None:
        options.json.write_text(json.dumps(failed, indent=1))
    last = options.first + options.cases - 1
    print(
        f"{damages} damages in {options.cases} cases (seeds {options.first} to {last}): "
        f"{len(failed)} cases failed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
