"""Well-known networks: classifiers of images of 224 x 224, a detector of objects, and an encoder with its decoder.

A classifier is a list of stages of similar blocks.
"""

from __future__ import annotations

from dmlvk.benchmark.networks.network import Dimensions, LayerNode, Network

CLASSES = 1000
SIZE = 224

# Of ResNet-50 and ResNeXt-50: channels inside a block, blocks, and the stride of the first block.
RESIDUAL_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
EXPANSION = 4

# Of MobileNetV2 and EfficientNet-B0: expansion, channels, blocks, stride of the first block, and filter.
MOBILENET_STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 32, 3, 2, 3),
    (6, 64, 4, 2, 3),
    (6, 96, 3, 1, 3),
    (6, 160, 3, 2, 3),
    (6, 320, 1, 1, 3),
)
EFFICIENTNET_STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)

# Of SqueezeNet 1.1, between its pools: channels that a block squeezes to, and those of each of its two halves.
FIRE_STAGES = (
    ((16, 64), (16, 64)),
    ((32, 128), (32, 128)),
    ((48, 192), (48, 192), (64, 256), (64, 256)),
)


def resnet50(dimensions: Dimensions) -> Network:
    """ResNet-50, version 1.5: the 3x3 convolution of a block has its stride."""
    return _residual("resnet50", dimensions, 1, None)


def resnext50(dimensions: Dimensions) -> Network:
    """ResNeXt-50 32x4d: 32 groups, of 4 channels in the first stage."""
    return _residual("resnext50", dimensions, 2, 4)


def _residual(name: str, dimensions: Dimensions, inside: int, channels_per_group: int | None) -> Network:
    network = Network(name, 3, dimensions.size or SIZE)
    x = network.convolution(network.image, dimensions.channels(64), 7, 2)
    x = network.maximum(x, 3, 2, 1, 1)
    for number, (base, blocks, first_stride) in enumerate(RESIDUAL_STAGES):
        width, filters = dimensions.channels(base * inside), dimensions.channels(base * EXPANSION)
        groups = 1 if channels_per_group is None else width // (channels_per_group << number)
        for block in range(dimensions.depth(blocks)):
            stride = 1 if block else first_stride
            y = network.convolution(x, width, 1)
            y = network.convolution(y, width, 3, stride, groups=max(1, groups))
            y = network.convolution(y, filters, 1, is_rectified=False)
            shortcut = x if block else network.convolution(x, filters, 1, stride, is_rectified=False)
            x = network.add(y, shortcut)
    network.product(network.mean(x), CLASSES)
    return network


def mobilenetv2(dimensions: Dimensions) -> Network:
    """MobileNetV2: depthwise 3x3 convolutions between 1x1 ones, and sums without rectification."""
    return _inverted("mobilenetv2", dimensions, MOBILENET_STAGES)


def efficientnetb0(dimensions: Dimensions) -> Network:
    """EfficientNet-B0 without its squeezes and excitations: depthwise convolutions of 3x3 and 5x5."""
    return _inverted("efficientnetb0", dimensions, EFFICIENTNET_STAGES)


def _inverted(name: str, dimensions: Dimensions, stages: tuple[tuple[int, int, int, int, int], ...]) -> Network:
    network = Network(name, 3, dimensions.size or SIZE)
    x = network.convolution(network.image, dimensions.channels(32), 3, 2)
    for expansion, base, blocks, first_stride, kernel in stages:
        for block in range(dimensions.depth(blocks)):
            x = _inverted_block(network, x, expansion, dimensions.channels(base), 1 if block else first_stride, kernel)
    x = network.convolution(x, dimensions.channels(1280), 1)
    network.product(network.mean(x), CLASSES)
    return network


def _inverted_block(
    network: Network, x: LayerNode, expansion: int, filters: int, stride: int, kernel: int
) -> LayerNode:
    wide = x.channels * expansion
    y = x if expansion == 1 else network.convolution(x, wide, 1)
    y = network.convolution(y, wide, kernel, stride, groups=wide)
    y = network.convolution(y, filters, 1, is_rectified=False)
    return network.add(x, y, is_rectified=False) if stride == 1 and x.channels == filters else y


def squeezenet(dimensions: Dimensions) -> Network:
    """SqueezeNet 1.1: images of odd sizes, and inputs that are concatenated."""
    network = Network("squeezenet", 3, dimensions.size or SIZE)
    x = network.convolution(network.image, dimensions.channels(64), 3, 2, padding=0)
    for stage in FIRE_STAGES:
        x = network.maximum(x, 3, 2)
        for squeezed, half in stage[: dimensions.depth(len(stage))]:
            y = network.convolution(x, dimensions.channels(squeezed), 1)
            halves = [network.convolution(y, dimensions.channels(half), kernel) for kernel in (1, 3)]
            x = network.concat(*halves)
    network.mean(network.convolution(x, CLASSES, 1))
    return network


# For each place of a detector: three boxes of 4 coordinates, a confidence and 80 classes.
BOXES = 3 * (4 + 1 + 80)
DETECTOR_SIZE = 416
DETECTOR_STAGES = (16, 32, 64, 128, 256)

ENCODER_SIZE = 256
ENCODER_STAGES = (32, 64, 128, 256)
ENCODER_CLASSES = 2


def yolov3tiny(dimensions: Dimensions) -> Network:
    """YOLOv3-tiny: large images of few channels, images of 13 x 13, and 255 outputs at two sizes."""
    network = Network("yolov3tiny", 3, dimensions.size or DETECTOR_SIZE)
    channels = dimensions.channels
    x = network.image
    for base in DETECTOR_STAGES:
        x = network.convolution(x, channels(base), 3)
        fine = x
        x = network.maximum(x, 2, 2)
    x = network.convolution(x, channels(512), 3)
    x = network.maximum(x, 2, 1, 0, 1)
    x = network.convolution(x, channels(1024), 3)
    coarse = network.convolution(x, channels(256), 1)
    x = network.convolution(coarse, channels(512), 3)
    network.convolution(x, BOXES, 1, is_rectified=False)
    x = network.double(network.convolution(coarse, channels(128), 1))
    x = network.convolution(network.concat(x, fine), channels(256), 3)
    network.convolution(x, BOXES, 1, is_rectified=False)
    return network


def unet(dimensions: Dimensions) -> Network:
    """A small U-Net: 3x3 convolutions of 32 channels at the full size, and inputs that are concatenated."""
    network = Network("unet", 3, dimensions.size or ENCODER_SIZE)
    x = network.image
    kept = []
    for number, base in enumerate(ENCODER_STAGES):
        x = network.maximum(x, 2, 2) if number else x
        for _ in range(dimensions.depth(2)):
            x = network.convolution(x, dimensions.channels(base), 3)
        kept.append(x)
    for base, source in list(zip(ENCODER_STAGES, kept, strict=True))[-2::-1]:
        filters = dimensions.channels(base)
        x = network.concat(network.convolution(network.double(x), filters, 1), source)
        for _ in range(dimensions.depth(2)):
            x = network.convolution(x, filters, 3)
    network.convolution(x, ENCODER_CLASSES, 1, is_rectified=False)
    return network
