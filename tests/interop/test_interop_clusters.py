"""Clusters of workgroups through interop's launches, on the emulated GPU."""

import pytest

import hcq
import interop
from compiler.targets.nvptx import assembler
from tools.bringup.nv.kernels import ptx

pytestmark = pytest.mark.skipif(not assembler.available(), reason="neither nvJitLink nor ptxas is installed")


def expected(groups: int, size: int) -> list[int]:
    """Return what the ladder's kernel stores: the neighbour's number, clusters, rank and size."""
    out = []
    for group in range(groups):
        first, rank = group - group % size, group % size
        word = first + (rank + 1) % size + 1000 | groups // size << 16 | rank << 24 | size << 28
        out.append(word & 0xFFFF_FFFF)
    return out


def test_workgroups_of_a_cluster_read_each_others_shared_memory():
    with hcq.open("nv-emu") as device:
        kernel = interop.load(device, ptx("cluster", "sm_90a"))
        out = interop.empty(device, 16, "uint32")
        for size in (None, 1, 4):
            kernel.launch(out, groups=16, threads=1, cluster=size)
            assert out.numpy().tolist() == expected(16, size or 1)
        graph = hcq.Graph()
        commands = device.compute.record()
        kernel.record(commands, out, groups=16, threads=1, cluster=(8, 1, 1))
        graph.add(device.compute, commands)
        step = graph.compile()
        for _ in range(2):
            out.zero_()
            step.replay([]).wait()
            assert out.numpy().tolist() == expected(16, 8)
        with pytest.raises(hcq.UsageError, match="no multiple"):
            kernel.launch(out, groups=15, threads=1, cluster=2)


def test_the_cluster_that_an_image_requires_is_the_default():
    with hcq.open("nv-emu") as device:
        text = ptx("cluster", "sm_90a").replace("out) {", "out) .reqnctapercluster 2 {")
        kernel, out = interop.load(device, text), interop.empty(device, 16, "uint32")
        kernel.launch(out, groups=16, threads=1)
        assert out.numpy().tolist() == expected(16, 2)
        with pytest.raises(hcq.UsageError, match="compiled for clusters"):
            kernel.launch(out, groups=16, threads=1, cluster=4)
