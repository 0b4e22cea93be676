"""Triton's benchmark, by name."""


def do_bench(call, **options):
    raise NotImplementedError
