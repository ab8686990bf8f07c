"""The network: its layers, its training, and its form as an ONNX model of floats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from examples.digits.layers import Array, Convolution, Dense, Layer, Rectifier

SIDE, CLASSES = 8, 10
# Adam's settings. The rate falls to 0 along half a cosine.
BATCH, RATE, DECAY = 32, 0.003, 1e-4
MOMENTUM, SQUARES, LEAST = 0.9, 0.999, 1e-8


class Network:
    """Pictures {n,1,8,8} of ink from 0 to 1, to a score for each digit, {n,10}.

    Args:
        generator (Generator): Of the first weights, and of everything random in the training.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self.layers: dict[str, Layer] = {
            "strokes": Convolution(generator, 1, 16, 3),
            "strokes_relu": Rectifier(),
            "halving": Convolution(generator, 16, 32, 3, stride=2),
            "halving_relu": Rectifier(),
            "depthwise": Convolution(generator, 32, 32, 3, group=32),
            "depthwise_relu": Rectifier(),
            "pointwise": Convolution(generator, 32, 32, 1),
            "pointwise_relu": Rectifier(),
            "classes": Dense(generator, 32 * (SIDE // 2) ** 2, CLASSES),
        }

    @property
    def parameters(self) -> list[Array]:
        return [parameter for layer in self.layers.values() for parameter in layer.parameters]

    @property
    def gradients(self) -> list[Array]:
        """Of the parameters, in their order."""
        return [gradient for layer in self.layers.values() for gradient in layer.gradients]

    def scores(self, pictures: Array) -> Array:
        """A score for each digit; the highest is the answer."""
        x = pictures
        for layer in self.layers.values():
            x = layer.forward(x)
        return x

    def loss(self, pictures: Array, labels: Array) -> float:
        """The mean cross-entropy of a batch; leaves its gradients in the layers."""
        scores = self.scores(pictures)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        numbers = np.arange(len(labels))
        loss = -np.log(shares[numbers, labels]).mean()
        shares[numbers, labels] -= 1
        gradient = shares / len(labels)
        for layer in reversed(self.layers.values()):
            gradient = layer.backward(gradient)
        return float(loss)

    def train(self, pictures: Array, labels: Array, epochs: int, report: Callable[[int, float], None]) -> None:
        """Fit the parameters with Adam, on pictures that are moved by up to one pixel.

        Args:
            pictures (ndarray): {n,1,8,8}, doubles.
            labels (ndarray): {n}, integers from 0 to 9.
            epochs (int): How often each picture is seen.
            report (callable): Called after each epoch with its number, from 1, and its mean loss.
        """
        parameters, gradients = self.parameters, self.gradients
        means, squares = ([np.zeros_like(parameter) for parameter in parameters] for _ in range(2))
        starts = range(0, len(pictures), BATCH)
        step, last = 0, epochs * len(starts)
        for epoch in range(epochs):
            order = self._generator.permutation(len(pictures))
            losses = []
            for start in starts:
                chosen = order[start : start + BATCH]
                losses.append(self.loss(self._moved(pictures[chosen]), labels[chosen]))
                step += 1
                rate = RATE * 0.5 * (1 + np.cos(np.pi * step / last))
                for parameter, gradient, mean, square in zip(parameters, gradients, means, squares, strict=True):
                    slope = gradient + DECAY * parameter
                    mean += (1 - MOMENTUM) * (slope - mean)
                    square += (1 - SQUARES) * (slope**2 - square)
                    deviation = np.sqrt(square / (1 - SQUARES**step)) + LEAST
                    parameter -= rate * mean / (1 - MOMENTUM**step) / deviation
            report(epoch + 1, float(np.mean(losses)))

    def _moved(self, pictures: Array) -> Array:
        """Each picture moved by -1, 0 or 1 pixels in both directions."""
        padded = np.pad(pictures, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (SIDE, SIDE), (2, 3))
        rows, columns = self._generator.integers(0, 3, (2, len(pictures)))
        return windows[np.arange(len(pictures)), :, rows, columns]

    def model(self) -> onnx.ModelProto:
        """The network in single floats: "pictures" to "probabilities", for any number of pictures."""
        nodes, constants, value = [], [], "pictures"
        for name, layer in self.layers.items():
            names = [f"{name}_weight", f"{name}_bias"][: len(layer.parameters)]
            for parameter, stem in zip(layer.parameters, names, strict=True):
                constants.append(numpy_helper.from_array(parameter.astype(np.float32), stem))
            if isinstance(layer, Convolution):
                attributes = {
                    "kernel_shape": layer.weight.shape[2:],
                    "pads": [layer.padding] * 4,
                    "strides": [layer.stride] * 2,
                    "group": layer.group,
                }
                nodes.append(helper.make_node("Conv", [value, *names], [name], name=name, **attributes))
            elif isinstance(layer, Rectifier):
                nodes.append(helper.make_node("Relu", [value], [name], name=name))
            else:
                nodes.append(helper.make_node("Flatten", [value], ["features"], name="features"))
                nodes.append(helper.make_node("Gemm", ["features", *names], [name], name=name))
            value = name
        nodes.append(helper.make_node("Softmax", [value], ["probabilities"], name="probabilities", axis=1))
        real = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            nodes,
            "digits",
            [helper.make_tensor_value_info("pictures", real, ["n", 1, SIDE, SIDE])],
            [helper.make_tensor_value_info("probabilities", real, ["n", CLASSES])],
            constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
