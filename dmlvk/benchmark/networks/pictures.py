"""Networks whose outputs are images: a detector of objects, and an encoder with its decoder."""

from __future__ import annotations

from dmlvk.benchmark.networks.network import Dimensions, Network

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
