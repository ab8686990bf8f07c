"""The training of the network of digits in its parts: gradients, repeatability, the ONNX model, its quantization.

The whole training is in tests/models.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from dmlvk.demo.digits import ink, unseen_pictures
from examples.digits.layers import Array, Convolution, Dense, Layer, Rectifier
from examples.digits.network import Network
from examples.digits.train import answers, archive, quantized, split
from tests.onnx.models import onnx_runtime
from tests.programs import python
from tests.reference.onnx_runtime import ONNX_RUNTIME

ROOT = Path(__file__).parents[2]

LAYERS: dict[str, tuple[Callable[[np.random.Generator], Layer], tuple[int, ...]]] = {
    "convolution": (lambda generator: Convolution(generator, 3, 4, 3), (2, 3, 5, 6)),
    "stride": (lambda generator: Convolution(generator, 2, 3, 3, stride=2), (2, 2, 7, 8)),
    "groups": (lambda generator: Convolution(generator, 4, 6, 3, group=2), (2, 4, 5, 4)),
    "depthwise": (lambda generator: Convolution(generator, 4, 4, 3, group=4), (2, 4, 4, 5)),
    "one tap": (lambda generator: Convolution(generator, 5, 3, 1), (2, 5, 3, 3)),
    "rectifier": (lambda generator: Rectifier(), (3, 4, 2, 2)),
    "dense": (lambda generator: Dense(generator, 12, 5), (3, 3, 2, 2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_small_steps(name: str) -> None:
    make, shape = LAYERS[name]
    generator = np.random.default_rng(0)
    layer, x = make(generator), generator.standard_normal(shape)
    outward = generator.standard_normal(layer.forward(x).shape)
    inward = layer.backward(outward)
    expected = [gradient.copy() for gradient in (inward, *layer.gradients)]
    for array, gradient in zip((x, *layer.parameters), expected, strict=True):
        assert array.shape == gradient.shape
        for place in generator.choice(array.size, min(array.size, 12), replace=False):
            changes = []
            for step in (1e-6, -2e-6):
                array.reshape(-1)[place] += step
                changes.append((layer.forward(x) * outward).sum())
            array.reshape(-1)[place] += 1e-6
            np.testing.assert_allclose((changes[0] - changes[1]) / 2e-6, gradient.reshape(-1)[place], 1e-5, 1e-6)


def trained(seed: int) -> tuple[Network, list[float]]:
    """A network after a short training, and its losses."""
    pictures, labels = unseen_pictures()
    network, losses = Network(np.random.default_rng(seed)), []
    network.train(ink(pictures[:256]).astype(float), labels[:256], 8, lambda epoch, loss: losses.append(loss))
    return network, losses


def test_training_lowers_the_loss_and_is_the_same_each_time() -> None:
    network, losses = trained(3)
    assert len(losses) == 8 and losses[-1] < 0.6 * losses[0], losses
    again, other = trained(3)[0], trained(4)[0]
    for one, same in zip(network.parameters, again.parameters, strict=True):
        np.testing.assert_array_equal(one, same)
    assert not np.array_equal(network.parameters[0], other.parameters[0])


def test_the_model_has_the_networks_scores_and_the_quantizer_its_answers() -> None:
    network, _ = trained(5)
    pictures, _ = unseen_pictures()
    scores = network.scores(ink(pictures).astype(float))
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    (found,) = onnx_runtime(network.model(), {"pictures": ink(pictures)})
    np.testing.assert_allclose(found, shares, atol=1e-5)
    integers = ONNX_RUNTIME.call("the quantizer", quantized, network.model(), pictures[:64])
    agreeing = ONNX_RUNTIME.call("the integers", answers, integers, pictures) == scores.argmax(axis=1)
    assert agreeing.mean() > 0.9
    model = onnx.load_from_string(integers)
    assert [node.op_type for node in model.graph.node].count("QLinearConv") == 4
    weights = [t for t in model.graph.initializer if t.name.endswith("_weight_quantized")]
    assert len(weights) == 5
    for tensor in weights:
        assert tensor.data_type == onnx.TensorProto.INT8
        assert np.abs(numpy_helper.to_array(tensor).astype(int)).max() == 64


def test_a_picture_on_both_sides_of_the_split_is_refused() -> None:
    generator = np.random.default_rng(0)
    pictures: Array = generator.integers(0, 17, (1797, 8, 8), np.uint8)
    labels: Array = generator.integers(0, 10, 1797, np.uint8)
    (_, first), (_, second) = split(pictures, labels)
    assert (len(first), len(second)) == (1200, 597)
    pictures[1500] = pictures[20]
    with pytest.raises(ValueError, match="a picture twice"):
        split(pictures, labels)


def test_archives_are_the_same_each_time() -> None:
    pictures, labels = unseen_pictures()
    assert archive(pictures, labels) == archive(pictures, labels)


def test_without_scikit_learn_one_line_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['sklearn'] = None; sys.argv = ['train']\n"
        "from examples.digits.train import main; main()"
    )
    done = python("-c", program, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: the data come with scikit-learn: pip install scikit-learn")
    assert len(done.stderr.strip().splitlines()) == 1
