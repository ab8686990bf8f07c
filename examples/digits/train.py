"""Trains and quantizes the network: python -m examples.digits.train

Needs the packages scikit-learn, for its data set of digits, onnx and onnxruntime. Writes the network and the pictures
on which it is tested; the training never sees these.
"""

from __future__ import annotations

import io
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx

from dmlvk._common import files
from dmlvk.demo.digits import NETWORK, PICTURES, Accuracy, ink
from examples.digits.layers import Array
from examples.digits.network import BATCH, Network

SEED, EPOCHS = 0, 40
# The first pictures train, the others test. The split keeps the data's order.
TRAINING = 1200
# The network belongs to the package, whose demo shows it.
PACKAGE = Path(__file__).resolve().parents[2] / "dmlvk" / "demo"
# Operators that become integers: all of them.
QUANTIZED = ["Conv", "Relu", "Flatten", "Gemm", "Softmax"]


def digits() -> tuple[Array, Array]:
    """scikit-learn's digits: pictures {n,8,8} UINT8 of ink from 0 to 16, and labels {n} UINT8.

    Raises:
        click.ClickException: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise click.ClickException(f"the data come with scikit-learn: pip install scikit-learn ({error})") from error
    loaded = load_digits()
    return loaded.images.astype(np.uint8), loaded.target.astype(np.uint8)


def split(pictures: Array, labels: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Pictures with labels for the training, and others for the test.

    Raises:
        ValueError: A picture of the test is one of the training too.
    """
    training, test = (pictures[:TRAINING], labels[:TRAINING]), (pictures[TRAINING:], labels[TRAINING:])
    if {picture.tobytes() for picture in training[0]} & {picture.tobytes() for picture in test[0]}:
        raise ValueError("the data hold a picture twice, once before and once after the split")
    return training, test


class Batches:
    """The training's pictures, in the form in which ONNX Runtime's quantizer asks for them."""

    def __init__(self, pictures: Array) -> None:
        self._feeds: Iterator[dict[str, Array]] = iter(
            [{"pictures": ink(pictures[start : start + BATCH])} for start in range(0, len(pictures), BATCH)]
        )

    def get_next(self) -> dict[str, Array] | None:
        return next(self._feeds, None)


def quantized(model: onnx.ModelProto, pictures: Array) -> bytes:
    """The model in integers of 8 bits, by ONNX Runtime's quantizer.

    Weights have 7 bits: on x86 processors without VNNI, ONNX Runtime saturates sums of two products to 16 bits, and its
    results would depend on the processor.

    Args:
        model (ModelProto):
        pictures (ndarray): {n,8,8} UINT8, which show the quantizer the range of each value.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(Batches, CalibrationDataReader):  # type: ignore[misc]
        pass

    # It advises to fold and fuse the model's nodes first. This model has none such.
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="dmlvk-digits-") as folder:
        source, target = Path(folder, "floats.onnx"), Path(folder, "integers.onnx")
        onnx.save(model, source)
        quantize_static(
            source,
            target,
            Reader(pictures),
            quant_format=QuantFormat.QOperator,
            op_types_to_quantize=QUANTIZED,
            per_channel=True,
            reduce_range=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return target.read_bytes()


def answers(model: bytes, pictures: Array) -> Array:
    """What ONNX Runtime says a model answers, {n}."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(None, {"pictures": ink(pictures)})
    return np.asarray(probabilities).argmax(axis=1)


def archive(pictures: Array, labels: Array) -> bytes:
    """Pictures and labels as a .npz file."""
    content = io.BytesIO()
    np.savez_compressed(content, pictures=pictures, labels=labels)
    return content.getvalue()


@click.command()
@click.option("--seed", default=SEED, show_default=True, help="Of the first weights and of the order of the pictures.")
@click.option("--epochs", type=click.IntRange(min=1), default=EPOCHS, show_default=True)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=PACKAGE,
    show_default=False,
    help="The folder for digits.onnx and digits.npz; dmlvk/demo by default.",
)
def main(seed: int, epochs: int, output: Path) -> None:
    """Train and quantize the network, and print its accuracy on pictures that it has not seen."""
    files.require_folder_place(output)
    (pictures, labels), test = split(*digits())
    network = Network(np.random.default_rng(seed))

    def report(epoch: int, loss: float) -> None:
        if epoch % 10 == 0 or epoch == epochs:
            click.echo(f"epoch {epoch:3} of {epochs}: mean loss {loss:.4f}")

    network.train(ink(pictures).astype(np.float64), labels, epochs, report)
    model = network.model()
    integers = quantized(model, pictures)
    for kind, content in (("floats", model.SerializeToString()), ("integers", integers)):
        click.echo(f"accuracy in {kind}: {Accuracy.of(answers(content, test[0]), test[1])}")
    output.mkdir(parents=True, exist_ok=True)
    contents: dict[str, Any] = {NETWORK: integers, PICTURES: archive(*test)}
    for name, content in contents.items():
        files.write_bytes(output / name, content)
        click.echo(f"wrote {output / name}, {len(content):,} bytes")


if __name__ == "__main__":
    main()
