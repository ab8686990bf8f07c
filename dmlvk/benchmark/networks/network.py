"""A network: its nodes in an order in which they can run, with the sizes of their outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from dmlvk.benchmark.cases.quantized_linear_convolution import Layer

# Channels come in multiples of this, but for a network's own odd numbers, such as its outputs.
CHANNEL_STEP = 8
IMAGE = "image"


@dataclass(frozen=True)
class Dimensions:
    """How large a network is, beside the published one.

    width: the share of the channels.
    size: height and width of the image; None for the published ones.
    blocks: the most blocks of a stage; None for all.
    """

    width: float = 1.0
    size: int | None = None
    blocks: int | None = None

    def channels(self, count: int) -> int:
        """A number of channels, scaled."""
        if self.width == 1.0:
            return count
        return max(CHANNEL_STEP, round(count * self.width / CHANNEL_STEP) * CHANNEL_STEP)

    def depth(self, count: int) -> int:
        """A number of blocks, limited."""
        return count if self.blocks is None else min(count, self.blocks)


@dataclass(frozen=True)
class LayerNode:
    """A node.

    kind: "convolution", "add", "concat", "maximum" (a pool), "mean" (of each channel), "double" (the size, by repeated
        pixels) or "product" (with a matrix).
    name: the name of the node and of its output.
    channels, size: of the output; its images are square.
    layer: of a convolution.
    is_rectified: whether negative results become 0.
    window: of a pool: size, step, padding before and padding after.
    """

    kind: str
    name: str
    inputs: tuple[str, ...]
    channels: int
    size: int
    layer: Layer | None = None
    is_rectified: bool = False
    window: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass
class Network:
    """A network that grows node by node. Each method adds a node and returns it.

    channels, size: of the image.
    nodes: by name, in the order in which they were added.
    """

    name: str
    channels: int
    size: int
    nodes: dict[str, LayerNode] = field(default_factory=dict)

    @property
    def image(self) -> LayerNode:
        """What the network is given, as if it were a node."""
        return LayerNode("image", IMAGE, (), self.channels, self.size)

    @property
    def outputs(self) -> list[LayerNode]:
        """The nodes that no other node reads."""
        read = {name for node in self.nodes.values() for name in node.inputs}
        return [node for name, node in self.nodes.items() if name not in read]

    @property
    def layers(self) -> list[Layer]:
        """The convolutions in their order."""
        return [node.layer for node in self.nodes.values() if node.layer is not None]

    @property
    def counts(self) -> Mapping[Layer, int]:
        """The different convolutions in their order, and how often each occurs."""
        return Counter(self.layers)

    def convolution(
        self,
        source: LayerNode,
        filters: int,
        kernel: int,
        stride: int = 1,
        *,
        groups: int = 1,
        padding: int | None = None,
        is_rectified: bool = True,
    ) -> LayerNode:
        """A convolution with a bias; the padding is by default half the filter."""
        layer = Layer(source.channels, source.size, filters, kernel, stride, groups, padding)
        return self._add("convolution", (source,), filters, layer.output_size, layer=layer, is_rectified=is_rectified)

    def add(self, first: LayerNode, second: LayerNode, *, is_rectified: bool = True) -> LayerNode:
        """The sum of two tensors of the same sizes."""
        return self._add("add", (first, second), first.channels, first.size, is_rectified=is_rectified)

    def concat(self, *sources: LayerNode) -> LayerNode:
        """The channels of several tensors beside each other."""
        return self._add("concat", sources, sum(source.channels for source in sources), sources[0].size)

    def maximum(self, source: LayerNode, kernel: int, stride: int, before: int = 0, after: int = 0) -> LayerNode:
        """A pool of maxima."""
        size = (source.size + before + after - kernel) // stride + 1
        return self._add("maximum", (source,), source.channels, size, window=(kernel, stride, before, after))

    def mean(self, source: LayerNode) -> LayerNode:
        """The mean of each channel."""
        return self._add("mean", (source,), source.channels, 1)

    def double(self, source: LayerNode) -> LayerNode:
        """Each pixel four times."""
        return self._add("double", (source,), source.channels, 2 * source.size)

    def product(self, source: LayerNode, columns: int) -> LayerNode:
        """The product of each image, of one pixel, with a matrix."""
        return self._add("product", (source,), columns, 1)

    def _add(
        self,
        kind: str,
        sources: tuple[LayerNode, ...],
        channels: int,
        size: int,
        *,
        layer: Layer | None = None,
        is_rectified: bool = False,
        window: tuple[int, int, int, int] = (0, 0, 0, 0),
    ) -> LayerNode:
        name = f"{kind}_{len(self.nodes)}"
        inputs = tuple(source.name for source in sources)
        node = self.nodes[name] = LayerNode(kind, name, inputs, channels, size, layer, is_rectified, window)
        return node
