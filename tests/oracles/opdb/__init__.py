"""PyTorch's operator database as an oracle: its samples, called here and in PyTorch, and compared.

`torch.testing._internal.common_methods_invocations.op_db` lists PyTorch's operations with sample inputs and
inputs that must be refused. `python -m tests.oracles.opdb` calls every one that exists here; `--record` keeps
part of the answers for the tests, which run without PyTorch.

Next: `call`, one call and its answer; `ours`, how it is evaluated here; `theirs`, in PyTorch; `judge`, the
comparison; `decisions`, differences on purpose; `archive`, what is kept.
"""
