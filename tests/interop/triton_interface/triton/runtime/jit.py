"""What `triton.reinterpret` returns."""


class TensorWrapper:
    def __init__(self, base, dtype):
        self.base = base
        self.dtype = dtype
