"""Inputs of real sizes for the Triton kernels of the corpus, which are timed beside Triton's interpreter."""

import math

import numpy as np
import pytest

from tests.guests import more_cases


def test_workloads_are_cases_of_the_corpus():
    names = {case.name for case in more_cases.ALL}
    found = [case.name for case in more_cases.workloads()]
    assert len(set(found)) == len(found)
    assert names.issuperset(found)
    assert len(found) >= 35


@pytest.mark.slow
def test_workloads_have_hundreds_of_workgroups_and_the_kernel_of_their_case():
    known = {case.name: case for case in more_cases.ALL}
    for case in more_cases.workloads():
        run, small = case.make(np.random.default_rng(1)), known[case.name].make(np.random.default_rng(1))
        assert 128 <= math.prod(run.grid) <= 256, case.name
        assert case.kernel == known[case.name].kernel
        assert {*run.expected} >= {*small.expected} or case.name == "grouped_gemm"
