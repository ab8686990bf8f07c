"""Other libraries on the same work. Each has a module, which imports the library only when needed."""

from __future__ import annotations

from dmlvk.benchmark.peers.arrays import CuPy, NumPy
from dmlvk.benchmark.peers.cudnn import CUDNN_FLOAT16_NCHW, CUDNN_FLOAT16_NHWC, CUDNN_INT8
from dmlvk.benchmark.peers.iree import IREE
from dmlvk.benchmark.peers.ncnn import NCNN
from dmlvk.benchmark.peers.onnx_runtime import ONNXRuntime
from dmlvk.benchmark.peers.peer import OperatorPeer, Trial
from dmlvk.benchmark.peers.torch import TORCH_COMPILED, TORCH_EAGER

__all__ = ["PEERS", "OperatorPeer", "Trial"]

PEERS: dict[str, OperatorPeer] = {
    peer.name: peer
    for peer in (
        NumPy(),
        ONNXRuntime(),
        TORCH_EAGER,
        TORCH_COMPILED,
        CuPy(),
        CUDNN_FLOAT16_NHWC,
        CUDNN_FLOAT16_NCHW,
        CUDNN_INT8,
        NCNN(),
        IREE(),
    )
}
