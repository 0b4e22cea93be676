"""`torch.compile(model, backend="hcq")`: graphs of PyTorch run on the devices of this project.

PyTorch finds `hcq` by the entry point group `torch_dynamo_backends`; it is optional (`hcq[torch]`), and only
this wing imports it. TorchDynamo gives graphs of ATen operators, for training a forward and a backward graph.
Each is captured once for its shapes, and runs as one launch.

Not here: PyTorch's names for tensors of the frontend (`frontend.torch`).
"""

try:
    import torch as _torch  # noqa: F401 - the modules below need it
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("needs PyTorch\nhint: pip install 'hcq[torch]'", name="torch") from error
from frontend.torch_compile.backend import CompileSettings, graph_breaks, hcq
from frontend.torch_compile.graph import GraphBreak, unsupported

__all__ = ["CompileSettings", "GraphBreak", "graph_breaks", "hcq", "unsupported"]
