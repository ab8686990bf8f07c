"""torch tensors through a slice, a convolution of 8-bit integers, and back.

    python -m examples.torch_pipeline --images 8

A model of torch whose data preparation and first layer are dmlvk's: images are cropped and mirrored by SLICE1,
convolved by QUANTIZED_LINEAR_CONVOLUTION, and go on as torch tensors, to torch's own pooling. Both operators are
custom operators of torch, so that `torch.export` keeps each as one node. The result is compared with the same steps
in torch: the sums in doubles, which are exact here, and the rounding that the operator defines. Needs the extra
`torch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dmlvk.command_line.terminal import clear_errors

if TYPE_CHECKING:
    import torch

SIDE, CROP, MARGIN = 36, 32, 2
INPUT_SCALE, INPUT_ZERO_POINT = 1 / 64, 128
OUTPUT_SCALE, OUTPUT_ZERO_POINT = 1 / 8, -3


def pipeline(filter: torch.Tensor, filter_scale: torch.Tensor, device: str | None) -> torch.nn.Module:
    """A module of images {n,3,SIDE,SIDE} of uint8: cropped, mirrored, convolved to int8 and pooled."""
    import torch

    import dmlvk.torch

    class Pipeline(torch.nn.Module):  # type: ignore[misc]
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            count = images.shape[0]
            mirrored = dmlvk.torch.slice1(
                images,
                input_window_offsets=[0, 0, MARGIN, MARGIN],
                input_window_sizes=[count, 3, CROP, CROP],
                input_window_strides=[1, 1, 1, -1],
                device=device,
            )
            convolved = dmlvk.torch.quantized_linear_convolution(
                mirrored,
                INPUT_SCALE,
                filter,
                filter_scale,
                OUTPUT_SCALE,
                input_zero_point=INPUT_ZERO_POINT,
                output_zero_point=OUTPUT_ZERO_POINT,
                output_dtype=torch.int8,
                start_padding=[1, 1],
                end_padding=[1, 1],
                device=device,
            )
            return torch.nn.functional.max_pool2d(convolved.float(), 2)

    return Pipeline()


def expected(images: torch.Tensor, filter: torch.Tensor, filter_scale: torch.Tensor) -> torch.Tensor:
    """The same in torch alone."""
    import torch

    window = images[:, :, MARGIN : MARGIN + CROP, MARGIN : MARGIN + CROP]
    real = torch.flip(window, dims=[3]).double() - INPUT_ZERO_POINT
    sums = torch.nn.functional.conv2d(real, filter.double(), padding=1)
    factor = (torch.tensor(INPUT_SCALE) * filter_scale) / torch.tensor(OUTPUT_SCALE)
    scaled = torch.round(sums.float() * factor.reshape(1, -1, 1, 1))
    return torch.nn.functional.max_pool2d((scaled + OUTPUT_ZERO_POINT).clamp(-128, 127), 2)


@click.command()
@click.option("--device", default=None, help="Index or part of a name; else $DMLVK_DEVICE, else the best.")
@click.option("--images", "count", type=click.IntRange(1), default=4, show_default=True)
@clear_errors
def main(device: str | None, count: int) -> None:
    """Send torch tensors through dmlvk and back. Ends with status 1 if the result is not torch's own."""
    try:
        import torch

        import dmlvk.torch  # noqa: F401
    except ImportError as error:
        raise click.ClickException(f"{error}: pip install 'dmlvk[torch]'") from error
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, SIDE, SIDE), dtype=torch.uint8, generator=random)
    filter = torch.randint(-127, 128, (8, 3, 3, 3), dtype=torch.int8, generator=random)
    filter_scale = torch.linspace(0.001, 0.002, 8)
    model = pipeline(filter, filter_scale, device)
    wanted = expected(images, filter, filter_scale)
    exported = torch.export.export(model, (images,))
    nodes = [str(node.target) for node in exported.graph.nodes if "dmlvk" in str(node.target)]
    results = {"the module": model(images), "the exported program": exported.module()(images)}
    click.echo(f"{tuple(images.shape)} of uint8 to {tuple(wanted.shape)}; exported with {', '.join(nodes)}")
    wrong = [name for name, result in results.items() if not torch.equal(result, wanted)]
    if wrong:
        raise click.ClickException(f"differs from torch's own result: {' and '.join(wrong)}")
    click.echo("The module and its exported program give torch's own result, bit for bit")


if __name__ == "__main__":
    main()
