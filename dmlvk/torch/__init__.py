"""The operators as functions on torch tensors, on the CPU and on CUDA. Needs torch 2.4 or newer (extra `torch`).

Each function is a custom operator of torch (`torch.ops.dmlvk.slice1`, ...), so that `torch.compile` and `torch.export`
keep it as one node. An input is never changed, and an output shares no memory with an input. Outputs are packed.

The elements of CPU tensors are copied to the device. The result lies in the device's memory if the host reaches that
memory, and is copied to the host otherwise. CUDA tensors stay on their GPU if dmlvk can share memory with CUDA.
Otherwise they go through the host, and a warning says so.
"""

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":  # torch is there, and lacks a library of its own
        raise
    install = 'dmlvk.torch needs torch, which is not installed: pip install "dmlvk[torch]", or pip install torch'
    raise ImportError(install, name="torch") from None
if not hasattr(torch.library, "custom_op"):
    found = f"torch {torch.__version__} is installed"
    raise ImportError(f"dmlvk.torch needs torch 2.4 or newer; {found}: pip install --upgrade torch", name="torch")

from dmlvk.torch.functions import diagonal_matrix1, one_hot, quantized_linear_convolution, slice1

__all__ = ["diagonal_matrix1", "one_hot", "quantized_linear_convolution", "slice1"]
