"""Well-known networks as data: what `dmlvk bench --network` measures, and `bench.networks` writes as ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dmlvk.benchmark.networks.known import (
    efficientnetb0,
    mobilenetv2,
    resnet50,
    resnext50,
    squeezenet,
    unet,
    yolov3tiny,
)
from dmlvk.benchmark.networks.network import Dimensions, LayerNode, Network

__all__ = ["NETWORKS", "SIZES", "Dimensions", "LayerNode", "Network"]

NETWORKS: Mapping[str, Callable[[Dimensions], Network]] = {
    "resnet50": resnet50,
    "resnext50": resnext50,
    "mobilenetv2": mobilenetv2,
    "efficientnetb0": efficientnetb0,
    "squeezenet": squeezenet,
    "yolov3tiny": yolov3tiny,
    "unet": unet,
}

# The dimensions of `dmlvk bench --size`. The smallest are for trials: all layers take seconds on a CPU driver.
SIZES: Mapping[str, Dimensions] = {
    "full": Dimensions(),
    "small": Dimensions(),
    "tiny": Dimensions(width=0.125, size=64, blocks=1),
}
