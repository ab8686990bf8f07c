"""What a kernel path of QUANTIZED_LINEAR_CONVOLUTION is: what it needs, what it would cost, and how it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

from dmlvk.device_profile import DeviceProfile
from dmlvk.errors import shown
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.operators.quantized_linear_convolution import ConvolutionGeometry
from dmlvk.planning.plan import PathError, Plan
from dmlvk.planning.quantized_linear_convolution.packing import folded_geometry

OPERATOR = QuantizedLinearConvolutionDesc.operator_name

Tile = TypeVar("Tile")


class Rank(IntEnum):
    """The order in which paths are taken where several can take a convolution, the best first.

    Each comes from measurements that `bench/NOTES.md` keeps.
    """

    DEPTHWISE = 0
    FIRST_LAYER = 1
    HALO = 2
    MATRIX = 3
    PACKED = 4
    DIRECT = 5


@dataclass(frozen=True)
class Obstacle:
    """Why a path cannot run on a device, or cannot take a convolution.

    Attributes
    ----------
    quantity : str
        What the rule is about: "filter taps".
    found : object
        Its value here.
    possible : str
        Which values are possible: "at most 49".
    """

    quantity: str
    found: object
    possible: str

    def __str__(self) -> str:
        return f"{self.quantity} = {self.found}, possible: {self.possible}"


class ObstacleError(Exception):
    """Planning met an obstacle that shows itself in the making only: no window shows all that a part needs."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(str(obstacle))
        self.obstacle = obstacle


@dataclass(frozen=True)
class Problem:
    """A convolution to be planned for a device.

    Attributes
    ----------
    desc : QuantizedLinearConvolutionDesc
    profile : DeviceProfile
    offsets : mapping of str to int
        Bytes from the start of its memory to a tensor's own start, by field.
    """

    desc: QuantizedLinearConvolutionDesc
    profile: DeviceProfile
    offsets: Mapping[str, int]

    @property
    def geometry(self) -> ConvolutionGeometry:
        """The convolution as the descriptor has it."""
        return self.desc.geometry

    @cached_property
    def folded_geometry(self) -> ConvolutionGeometry:
        """The convolution where a dimension with one tap steps over the input."""
        return folded_geometry(self.desc.geometry)


class Path(ABC, Generic[Tile]):
    """One way to run a convolution. A path is stateless; all paths give the same bits."""

    name: ClassVar[str]
    # A tile's name as users write it behind the path's, "matrix:128x128x64:64x32"; empty where tiles have no names.
    example_tile: ClassVar[str] = ""

    @abstractmethod
    def obstacle_on(self, profile: DeviceProfile) -> Obstacle | None:
        """What the path needs and a device lacks."""

    @abstractmethod
    def obstacle_to(self, problem: Problem) -> Obstacle | None:
        """Why the path cannot take a convolution, on a device that has what it needs."""

    @abstractmethod
    def rank(self, problem: Problem) -> int | None:
        """The place in the order that measurements gave; None where they speak against the path.

        Until rates are measured on each device, the estimates decide between paths of one rank only.
        """

    @abstractmethod
    def tiles(self, problem: Problem) -> Sequence[Tile]:
        """The tiles that the path offers for a convolution that it can take; at least one."""

    @abstractmethod
    def seconds(self, problem: Problem, tile: Tile) -> float:
        """What the convolution would take at most on such a device, the preparation of its operands included.

        The same estimates keep submissions short.
        """

    @abstractmethod
    def plan(self, problem: Problem, tile: Tile) -> Plan:
        """How it runs.

        Raises
        ------
        ObstacleError
            No window shows all that a part of the convolution needs.
        """

    def named_tile(self, problem: Problem, name: str) -> Tile:
        """The tile of a name.

        Raises
        ------
        PathError
            The path's tiles have no names, or the name is none, or the tile is not possible on the device.
        """
        raise PathError(f"{OPERATOR}: the tiles of path {self.name!r} have no names, so {shown(name)} is none")
