"""Record the bits of the results of many kernels, or compare them: `python -m tests.fuzz.bits`.

    HCQ_DEVICE=nv-emu:sm_90 python -m tests.fuzz.bits --cases 100 --out BITS
    HCQ_DEVICE=nv-emu:sm_90 python -m tests.fuzz.bits --cases 100 --compare BITS

Run `--out` before a change of the compiler that must change no result, `--compare` after it. The programs
of a seed are random ones of `tensors` in some of its modes, and products, convolutions and rows of `planned`,
whose sizes are large enough for tiles. Each is computed in one launch on `HCQ_DEVICE`. A line of the file is
a program: its key (device, mode, seed), its number of kernels, a digest of their machine code, and for each
result one of its dtype, shape and bytes. Different results fail; different code is counted.

Not here: comparison with NumPy (`tensors`).
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hcq.config import config, override
from hcq.store import key_of
from tests.fuzz import campaign, tensor_runs, tensors
from tools.arguments import existing, output

if TYPE_CHECKING:
    from collections.abc import Sequence

MODES: Final = ("eager", "wide", "graphs", "chains", "planned")
_SIZES: Final = (1, 2, 7, 16, 31, 32, 64, 96, 128, 200)


def planned(seed: int) -> list[Any]:
    """Return unrealized tensors: products, a convolution, sums and rows of random sizes and types."""
    from frontend import Tensor  # noqa: PLC0415 - only the processes that run kernels need it

    drawn, rng = random.Random(seed), np.random.default_rng(seed)  # noqa: S311 - programs, not secrets
    kind = drawn.choice(("float32", "float32", "float16", "bfloat16", "int8"))

    def of(*shape: int) -> Any:
        return Tensor(rng.integers(-9, 10, shape).astype(np.float32) / np.float32(8)).cast(kind)

    m, n, k = (drawn.choice(_SIZES) for _ in range(3))
    a, b, row = of(m, k), of(k, n), of(n)
    channels, side, taps = (
        drawn.choice((1, 3, 16, 32)),
        drawn.choice((5, 8, 17, 28)),
        drawn.choice((1, 3, 3, 5)),
    )
    image, weight = (
        of(drawn.choice((1, 2)), channels, side, side),
        of(drawn.choice((4, 32)), channels, taps, taps),
    )
    c = a @ b
    found = [c, (c + row).relu(), a.T.contiguous(), a.sum(0), c.sum(1), a.amax(1)]
    found.append(image.conv2d(weight, padding=drawn.choice((0, taps // 2)), stride=drawn.choice((1, 1, 2))))
    if kind != "int8":
        heads = of(2, drawn.choice((1, 16, 33, 64)), drawn.choice((16, 64)))
        scores = (heads @ heads.transpose(-1, -2)).softmax(-1) @ heads
        found += [c.softmax(-1), a.layernorm(), c.exp().sum(), scores, b.cumsum(0)]
    return found


def values(seed: int, mode: str) -> list[Any]:
    """Return the unrealized results of a program."""
    if mode == "planned":
        return planned(seed)
    program = tensors.program(seed, mode)
    env = tensor_runs.run(program, lambda _: False)
    return [env[name] for name in program.names()]


def bits(seed: int, mode: str) -> list[Any]:
    """Return the number of kernels of a program, a digest of their code, and one for each result."""
    from compiler.compile import compile_kernel  # noqa: PLC0415 - as above
    from frontend import Device  # noqa: PLC0415 - as above

    found = values(seed, mode)
    arch = Device[Device.DEFAULT].arch
    asts = tensor_runs.kernels(found)
    codes = [compile_kernel(ast, arch).image.code for ast in asts]
    found[0].realize(*found[1:])
    digests = [key_of(f"{x.dtype} {x.shape}", x.numpy().tobytes())[:16] for x in found]
    return [len(asts), key_of(*codes)[:16], digests]


def recorded(first: int, count: int, *, golden: str | None, folder: str) -> dict[int, str]:
    """Record `count` seeds in a file of a folder; return what differs from a golden file, by seed."""
    wanted = {} if golden is None else read(Path(golden))
    failed: dict[int, str] = {}
    with override(check=False), Path(folder, f"{first}.bits").open("w") as file:
        for seed in range(first, first + count):
            for mode in MODES:
                key = f"{config().device} {mode} {seed}"
                try:
                    found = bits(seed, mode)
                except Exception as error:  # noqa: BLE001 - compared as a result
                    found = [0, "", [type(error).__name__]]
                file.write(json.dumps([key, found]) + "\n")
                if golden is not None and (key not in wanted or wanted[key][2] != found[2]):
                    failed[seed] = f"{failed.get(seed, '')}{key}: wanted {wanted.get(key)}, saw {found}\n"
    return failed


def read(path: Path) -> dict[str, list[Any]]:
    """Return the programs of a file, by key: kernels, digest of their code, digests of the results."""
    return dict(map(json.loads, path.read_text().splitlines()))


def summary(found: dict[str, list[Any]], golden: dict[str, list[Any]]) -> str:
    """Return a line with the numbers of programs, kernels, errors, and programs whose code changed."""
    errors = sum(not count for count, _, _ in found.values())
    changed = sum(golden.get(key, [0, code])[1] != code for key, (_, code, _) in found.items())
    kernels = sum(count for count, _, _ in found.values())
    return f"{len(found)} programs, {kernels} kernels, {errors} errors, {changed} with other code\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool and return its exit status."""
    parser = campaign.parser("tests.fuzz.bits", __doc__, cases=25)
    parser.add_argument("--out", type=output, metavar="FILE", help="write the bits of this run")
    parser.add_argument("--compare", type=existing, metavar="FILE", help="a file of an earlier run")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        golden = None if options.compare is None else str(options.compare)
        status = campaign.run(partial(recorded, golden=golden, folder=folder), options, "programs agree")
        files = sorted(Path(folder).iterdir(), key=lambda file: int(file.stem))
        text = "".join(file.read_text() for file in files)
    if options.out is not None:
        options.out.write_text(text)
    found = dict(map(json.loads, text.splitlines()))
    sys.stdout.write(summary(found, found if golden is None else read(options.compare)))
    return status


if __name__ == "__main__":
    sys.exit(main())
