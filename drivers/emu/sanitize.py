"""Opt-in checks (placeholder until the core runs)."""
def watch(lib, c, *a): pass
def begin_group(lib, c, *a): pass
def barrier_opens(lib, c, *a): pass
def warp_released(lib, c, *a): pass
def barrier_arrive(lib, c, *a): pass

def shadow_bytes(checks, warps, shared): return 0

def before_atomic(wf, space): pass
def after_atomic(wf, space): pass
def fenced(wf): pass

def partial_barrier(wf, site): pass
