"""Other libraries on a network's convolutions, one after the other. Each imports its library only when needed."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dmlvk.benchmark.cases.quantized_linear_convolution import Layer
from dmlvk.benchmark.networks.timing import SHORT_WARM_UP_SECONDS, ChainTimes, repeats
from dmlvk.benchmark.networks.work import constants_of, desc_of, work_of
from dmlvk.benchmark.peers.cudnn import OnCuDNN
from dmlvk.benchmark.peers.ncnn import NCNN
from dmlvk.benchmark.peers.onnx_runtime import IR_VERSION, NODES, OPSET, OnONNXRuntime, session_of
from dmlvk.benchmark.peers.peer import Peer, UnsupportedError
from dmlvk.benchmark.peers.torch import time_on_cuda
from dmlvk.benchmark.timing import WARM_UP_SECONDS, Times, time_on_host
from dmlvk.conformance.case import Workload


class NetworkPeer(Peer):
    """A library that convolves."""

    @abstractmethod
    def measure_layer(self, layer: Layer, batch: int, layout: str, rounds: int) -> ChainTimes:
        """Times of a layer.

        Raises UnsupportedError: the peer cannot do this work. Any other exception is a failure of the peer and is
            reported as such.
        """

    @abstractmethod
    def measure_chain(self, layers: Sequence[Layer], batch: int, layout: str, rounds: int) -> ChainTimes:
        """Times of all layers in their order. Raises as `measure_layer` does."""


class CuDNNGraph(OnCuDNN, NetworkPeer):
    """cuDNN's float16 convolutions through torch, in a CUDA graph of one stream: each waits for the one before.

    Like `dmlvk.benchmark.peers.cudnn` it adds no bias, and its output is float16. In a chain each layer reads what the
    one before has written, if that is large enough, and else memory of its own.
    """

    name = "cudnn-fp16-graph"

    def measure_layer(self, layer: Layer, batch: int, layout: str, rounds: int) -> ChainTimes:
        import torch

        choose_fastest()
        with torch.no_grad():
            step = _Convolution(layer, batch, layout, 0)
            image = step.random_image()
            count = repeats(time_on_cuda(lambda _: step.run(image), 3, SHORT_WARM_UP_SECONDS).median)

            def run() -> None:
                for _ in range(count):
                    step.run(image)

            return _time_graph(run, rounds, SHORT_WARM_UP_SECONDS).divided(count)

    def measure_chain(self, layers: Sequence[Layer], batch: int, layout: str, rounds: int) -> ChainTimes:
        import torch

        choose_fastest()
        with torch.no_grad():
            steps = [_Convolution(layer, batch, layout, number) for number, layer in enumerate(layers)]
            images: list[Any] = []  # None where a layer reads what the one before has written
            output = None
            for step in steps:
                images.append(None if step.can_read(output) else step.random_image())
                output = step.run(step.as_image(output) if images[-1] is None else images[-1])

            def run() -> None:
                output = None
                for step, image in zip(steps, images, strict=True):
                    output = step.run(step.as_image(output) if image is None else image)

            return _time_graph(run, rounds, WARM_UP_SECONDS)


class _Convolution:
    """A layer in float16 on the GPU."""

    def __init__(self, layer: Layer, batch: int, layout: str, seed: int) -> None:
        import torch

        self._layer = layer
        self._format = torch.channels_last if layout == "nhwc" else torch.contiguous_format
        self._sizes = (batch, layer.channels, layer.size, layer.size)
        self._count = int(np.prod(self._sizes))
        channels = layer.channels // layer.groups
        sizes = (layer.filters, channels, layer.kernel, layer.kernel)
        # The outputs are spread as the inputs, so that no number grows or vanishes.
        weights = np.random.default_rng(seed).standard_normal(sizes, np.float32) / (channels * layer.kernel**2) ** 0.5
        self._weights = torch.from_numpy(weights).cuda().half().contiguous(memory_format=self._format)

    def random_image(self) -> Any:
        """An image of its own."""
        import torch

        return torch.randn(self._sizes, dtype=torch.float16, device="cuda").contiguous(memory_format=self._format)

    def can_read(self, output: Any) -> bool:
        """Whether an output's memory is large enough to be this layer's image, and has its layout."""
        return output is not None and output.numel() >= self._count and output.is_contiguous(memory_format=self._format)

    def as_image(self, output: Any) -> Any:
        """The memory of an output as this layer's image: no element is copied."""
        import torch

        batch, channels, size, _ = self._sizes
        if self._format == torch.channels_last:
            memory = output.permute(0, 2, 3, 1).reshape(-1)[: self._count]
            return memory.view(batch, size, size, channels).permute(0, 3, 1, 2)
        return output.reshape(-1)[: self._count].view(self._sizes)

    def run(self, image: Any) -> Any:
        """Convolve."""
        import torch

        layer = self._layer
        return torch.nn.functional.conv2d(image, self._weights, None, layer.stride, layer.margin, 1, layer.groups)


def choose_fastest() -> None:
    """Let cuDNN find its fastest algorithm for each layer, by trials at the first call."""
    import torch

    torch.backends.cudnn.benchmark = True


def recorded_graph(run: Callable[[], None]) -> Any:
    """A CUDA graph of what a function issues."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def _time_graph(run: Callable[[], None], rounds: int, warm_up_seconds: float) -> ChainTimes:
    """Record what a function issues in a CUDA graph, and time its replays by events and by the host's clock."""
    import torch

    graph = recorded_graph(run)
    on_device = time_on_cuda(lambda _: graph.replay(), rounds, warm_up_seconds)
    on_wall = []
    for _ in range(rounds):
        start = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        on_wall.append(time.perf_counter() - start)
    return ChainTimes(on_device, Times(tuple(on_wall)))


class ONNXRuntimeCPU(OnONNXRuntime, NetworkPeer):
    """ONNX Runtime's QLinearConv on all cores. It has one layout, NCHW, which stands beside both."""

    def measure_layer(self, layer: Layer, batch: int, layout: str, rounds: int) -> ChainTimes:
        return self.measure_chain([layer], batch, layout, rounds)

    def measure_chain(self, layers: Sequence[Layer], batch: int, layout: str, rounds: int) -> ChainTimes:
        """As declared. Each layer has memory of its own for input and output; one node runs after the other."""
        import onnxruntime

        model, feeds = _model(layers, batch)
        session = session_of(model)
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for output in session.get_outputs():
            memory = onnxruntime.OrtValue.ortvalue_from_shape_and_type(output.shape, np.uint8)
            binding.bind_ortvalue_output(output.name, memory)
        return ChainTimes(None, time_on_host(lambda _: session.run_with_iobinding(binding), rounds))


def _model(layers: Sequence[Layer], batch: int) -> tuple[bytes, Mapping[str, Any]]:
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants, inputs, outputs, feeds = [], [], [], [], {}
    for number, layer in enumerate(layers):
        desc, work = desc_of(layer, batch, "nchw"), work_of(layer)
        image = work.batch(work.images, batch)
        arrays = {**constants_of(layer, number), "input_tensor": image}
        node = NODES[type(desc)](desc, arrays, image)
        names = {name: f"{name}_{number}" for name in node.inputs}
        feeds[names["x"]] = image
        constants += [numpy_helper.from_array(array, names[name]) for name, array in node.constants.items()]
        nodes.append(helper.make_node(node.kind, list(names.values()), [f"y_{number}"], **node.attributes))
        inputs.append(helper.make_tensor_value_info(names["x"], TensorProto.UINT8, image.shape))
        outputs.append(helper.make_tensor_value_info(f"y_{number}", TensorProto.UINT8, desc.output_tensor.sizes))
    graph = helper.make_graph(nodes, "layers", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return model.SerializeToString(), feeds


class NCNNRow(NCNN, NetworkPeer):
    """ncnn's Vulkan layers, one image after the other: see `dmlvk.benchmark.peers.ncnn`, which says what it can do."""

    def measure_layer(self, layer: Layer, batch: int, layout: str, rounds: int) -> ChainTimes:
        desc, work = desc_of(layer, batch, "nchw"), work_of(layer)
        workload = Workload(desc, {**work.constants, "input_tensor": work.batch(work.images, batch)})
        # Differences of times on the wall: what is left is the convolutions' own.
        return ChainTimes(None, self.measure(workload, work.expected, rounds).times)

    def measure_chain(self, layers: Sequence[Layer], batch: int, layout: str, rounds: int) -> ChainTimes:
        raise UnsupportedError("ncnn's Python interface moves data between host and device in each call")


PEERS: dict[str, NetworkPeer] = {peer.name: peer for peer in (CuDNNGraph(), ONNXRuntimeCPU(), NCNNRow())}
