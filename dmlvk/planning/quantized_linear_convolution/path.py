"""A kernel path of QUANTIZED_LINEAR_CONVOLUTION: its needs, its cost and its plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import ClassVar, Generic, TypeVar

from dmlvk.device_profile import DeviceProfile
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.builder import PlanBuilder, View
from dmlvk.planning.device_rates import longest
from dmlvk.planning.plan import Plan
from dmlvk.planning.quantized_linear_convolution import product_geometry
from dmlvk.planning.quantized_linear_convolution.operands import ConvolutionOperands, Sources
from dmlvk.planning.question import Question
from dmlvk.tensor_desc import TensorFlags

OPERATOR = QuantizedLinearConvolutionDesc.operator_name
DATA_FIELDS = ("input_tensor", "output_tensor")
DATA = ("input", "filter", "output")

AnyTile = TypeVar("AnyTile")


@dataclass(frozen=True)
class Obstacle:
    """Why a path cannot run on a device, or take a convolution: "filter taps", those found, and "at most 49"."""

    quantity: str
    found: object
    possible: str

    def __str__(self) -> str:
        return f"{self.quantity} = {self.found}, possible: {self.possible}"


class ObstacleError(Exception):
    """Planning met an obstacle that only the construction of a plan finds: no window holds all that a part needs."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(str(obstacle))
        self.obstacle = obstacle


@dataclass(frozen=True)
class Problem:
    """A convolution to be planned for a device."""

    desc: QuantizedLinearConvolutionDesc
    profile: DeviceProfile
    offsets: Mapping[str, int]  # bytes from the start of its memory to a tensor's own start, by field
    has_sum: bool = False  # whether its last step adds another tensor

    def operands(self, geometry: ConvolutionGeometry) -> ConvolutionOperands:
        """The data tensors as they are bound, without parameters."""
        strides = (geometry.input_strides, geometry.filter_strides, geometry.output_strides)
        source, filters, output = (View(f"{n}_tensor", 0, 1, each) for n, each in zip(DATA, strides, strict=True))
        parameters = Sources.of(self.desc, {})
        return ConvolutionOperands(
            PlanBuilder(self.profile, self.offsets), geometry, source, filters, output, parameters
        )

    @cached_property
    def has_owned_constants(self) -> bool:
        """Whether everything but the input is OWNED_BY_DML, so that whatever follows from it is made once."""
        constants = (tensor for field, tensor in self.desc.tensors.items() if field not in DATA_FIELDS)
        return all(tensor.flags & TensorFlags.OWNED_BY_DML for tensor in constants)

    @cached_property
    def product_geometries(self) -> tuple[product_geometry.ProductGeometry, ...]:
        """The convolution as a matrix product, without joined groups and with all that can be joined.

        Whoever packs the filter of joined groups reads its zero points through one window.
        """
        folded = product_geometry.folded_geometry(self.desc.geometry)
        zero_point = self.desc.filter_zero_point_tensor
        if zero_point is not None:
            view = View("filter_zero_point_tensor", 0, 1, (self.desc.channel_stride("filter_zero_point_tensor"),))
            if not PlanBuilder(self.profile, self.offsets).shows(view, [(0, folded.output_channels)]):
                return (folded,)
        return tuple(folded.with_joined(count) for count in product_geometry.joinable_counts(folded))


class ConvolutionPath(ABC, Generic[AnyTile]):
    """One way to run a convolution. A path is stateless; all paths give the same bits."""

    name: ClassVar[str]
    # What a driver has to answer right before the path is taken.
    questions: ClassVar[tuple[Question, ...]] = ()

    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        """What the path needs and a device lacks; None if the device lacks nothing."""
        return None

    def obstacle_to(self, problem: Problem) -> Obstacle | None:
        """Why the path cannot take a convolution, on a device that has everything that the path needs."""
        return None

    @abstractmethod
    def tiles(self, problem: Problem) -> Sequence[AnyTile]:
        """The tiles that the path offers for a convolution; none if it cannot take it."""

    @abstractmethod
    def kernel_seconds(self, problem: Problem, tile: AnyTile) -> float:
        """An estimate of the time of the path's own kernel, for the whole convolution."""

    def seconds(self, problem: Problem, tile: AnyTile) -> float:
        """An estimate of the convolution's time on such a device, including the preparation of its input.

        The planner takes the path, and the tile, with the least. `python -m bench.paths` holds the estimates against
        measured times.
        """
        return self.kernel_seconds(problem, tile)

    def longest_seconds(self, problem: Problem, tile: AnyTile) -> float:
        """The estimate for the path's own kernel as the slowest device of its kind would have it.

        Each of the kernel's dispatches has its share of it: see `Dispatch.seconds`.
        """
        return longest(problem.profile, self.kernel_seconds(problem, tile))

    @abstractmethod
    def plan(self, problem: Problem, tile: AnyTile) -> Plan:
        """The plan of the convolution.

        Raises ObstacleError: no window holds all that a part of the convolution needs.
        """


@dataclass(frozen=True)
class Offer(Generic[AnyTile]):
    """A path that can take a convolution, with its best tile."""

    path: ConvolutionPath[AnyTile]
    tile: AnyTile
    seconds: float  # the estimated time

    @classmethod
    def of(cls, path: ConvolutionPath[AnyTile], problem: Problem) -> Offer[AnyTile] | None:
        """The path's best offer for a convolution; None if it cannot take it."""
        offers = [cls(path, tile, path.seconds(problem, tile)) for tile in path.tiles(problem)]
        return min(offers, key=attrgetter("seconds"), default=None)

    def plan(self, problem: Problem) -> Plan:
        """The plan, with its estimated time.

        Raises ObstacleError: as `ConvolutionPath.plan`.
        """
        return replace(self.path.plan(problem, self.tile), seconds=self.seconds)
