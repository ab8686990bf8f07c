"""Chooses the kernel path of a QUANTIZED_LINEAR_CONVOLUTION: the one with the least estimated time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product
from operator import attrgetter
from typing import Any

from dmlvk.device_profile import DeviceProfile, DeviceType
from dmlvk.errors import PathError, shown
from dmlvk.operators import QuantizedLinearConvolutionDesc
from dmlvk.planning.plan import GENERAL_PATH, NO_OFFSETS, Plan
from dmlvk.planning.quantized_linear_convolution.depthwise import DepthwisePath
from dmlvk.planning.quantized_linear_convolution.direct import DirectPath, GeneralPath
from dmlvk.planning.quantized_linear_convolution.halo import HaloPath
from dmlvk.planning.quantized_linear_convolution.matrix import MatrixPath
from dmlvk.planning.quantized_linear_convolution.path import ConvolutionPath, Obstacle, ObstacleError, Offer, Problem
from dmlvk.planning.quantized_linear_convolution.product import FloatPath, IntegerPath
from dmlvk.planning.quantized_linear_convolution.split_k import SplitKPath
from dmlvk.planning.quantized_linear_convolution.tiled_product import Tile, TiledPath
from dmlvk.planning.quantized_linear_convolution.vectors import VectorsPath

PATHS: tuple[ConvolutionPath[Any], ...] = (
    DepthwisePath(),
    HaloPath(),
    MatrixPath(),
    SplitKPath(),
    VectorsPath(),
    IntegerPath(),
    FloatPath(),
    DirectPath(),
    GeneralPath(),
)
OPERATOR = QuantizedLinearConvolutionDesc.operator_name
PATH_NAMES = tuple(path.name for path in PATHS)
QUESTIONS = {path.name: path.questions for path in PATHS if path.questions}

WRONG_ANSWER = Obstacle("answer to a known question", "wrong", "right")
PARTS = re.compile("[1-9][0-9]{0,3}")
# Estimates of two paths are off by at most so much beside each other, on recorded GPUs: one at 1.95 was the fastest.
# More paths and tiles are hardly worth the time to measure.
CLOSE, MOST_CLOSE = 2, 8
TILE_SIDES, SUBGROUP_SIDES = (32, 64, 128, 256), (16, 32, 64)


def plan_quantized_linear_convolution(
    desc: QuantizedLinearConvolutionDesc,
    profile: DeviceProfile,
    *,
    path: str | None = None,
    offsets: Mapping[str, int] = NO_OFFSETS,
) -> Plan:
    """Plan a QUANTIZED_LINEAR_CONVOLUTION.

    path: the name of one of the `PATHS`; None chooses. If the path's tiles have names, a colon and the name of a tile
        may follow: "matrix:128x128x64:64x32". If the path cuts K, a slash and the number of parts may: "split_k/4".
    offsets: bytes from the start of its memory to a tensor's own start, by field.

    Raises PathError: when the path does not exist at all, on this device, or for a convolution of this size.
    """
    return plan_problem(Problem(desc, profile, offsets), path)


def plan_problem(problem: Problem, path: str | None) -> Plan:
    """Plan a convolution that may be a part of another operator: see `plan_quantized_linear_convolution`."""
    if path is not None:
        return _forced(problem, path)
    # Of paths with the same estimate, the first is taken.
    for offer in sorted(offers(problem), key=attrgetter("seconds")):
        with suppress(ObstacleError):
            return offer.plan(problem)
    raise AssertionError("one path takes every convolution")


def offers(problem: Problem) -> list[Offer[Any]]:
    """The paths that can take a convolution, in the order of the registry."""
    found = [Offer.of(path, problem) for path in PATHS if _obstacle_on(path, problem.profile) is None]
    return [offer for offer in found if offer is not None]


def close_paths(desc: QuantizedLinearConvolutionDesc, profile: DeviceProfile, *, every: bool = False) -> list[str]:
    """See `paths_close_to_best`."""
    return paths_close_to_best(Problem(desc, profile, NO_OFFSETS), every=every)


def paths_close_to_best(problem: Problem, *, every: bool = False) -> list[str]:
    """The paths and tiles whose estimates are within a factor of the least: the planner's choice, then the least.

    Each path with its own best tile comes before the other tiles.

    every: whether all are listed, whatever their estimates, with tiles that the planner would not try.
    """
    chosen = plan_problem(problem, None).path
    estimates: dict[str, float] = {}
    for offer in offers(problem):
        if (path := offer.path).name == GENERAL_PATH:
            continue
        estimates[path.name] = offer.seconds
        if isinstance(path, TiledPath):
            for name, tile in path.measured_tiles(problem, offer.tile, _every_tile(problem.profile) if every else None):
                estimates[f"{path.name}:{name}"] = path.seconds(problem, tile)
    most = math.inf if every else CLOSE * min(estimates.values())
    close = [path for path, seconds in estimates.items() if seconds <= most and path != chosen]
    others = sorted(close, key=lambda path: (":" in path, estimates[path]))
    return [chosen, *(others if every else others[: MOST_CLOSE - 1])]


def _every_tile(profile: DeviceProfile) -> Iterator[Tile]:
    """All tiles that some kernel might have, those that the planner would not try included.

    None on a CPU: its matrix units are loops, and a batch would take thousands of dispatches.
    """
    if profile.device_type is not DeviceType.CPU:
        for step, *sides in product((64, 32, 128), TILE_SIDES, TILE_SIDES, SUBGROUP_SIDES, SUBGROUP_SIDES):
            tile = Tile(sides[0], sides[1], step, sides[2], sides[3])
            if 2 <= tile.owners <= 8:
                yield tile


def convolution_paths(profile: DeviceProfile) -> tuple[str, ...]:
    """The names of the kernel paths that a device can run."""
    return tuple(path.name for path in PATHS if _obstacle_on(path, profile) is None)


def _obstacle_on(path: ConvolutionPath[Any], profile: DeviceProfile) -> Obstacle | None:
    """What the path needs and a device lacks: also the trust in its answers."""
    return WRONG_ANSWER if path.name in profile.distrusted_paths else path.obstacle_on(profile)


def _forced(problem: Problem, text: str) -> Plan:
    head, slash, parts = text.partition("/")
    name, _, tile_name = head.partition(":")
    if slash and not PARTS.fullmatch(parts):
        raise PathError(f"{OPERATOR} has no kernel path {shown(text)}: after a slash, the parts of K are 1 to 9999")
    paths = {path.name: path for path in PATHS if _obstacle_on(path, problem.profile) is None}
    path = paths.get(name)
    tiled = path if isinstance(path, TiledPath) else None
    if path is None or (tile_name and tiled is None):
        names = ", ".join(repr(name) for name in paths)
        raise PathError(f"{OPERATOR} has no kernel path {shown(text)} on {problem.profile.name}; it has {names}")
    offer, obstacle = Offer.of(path, problem), path.obstacle_to(problem)
    if offer is not None:
        try:
            tile = tiled.named_tile(problem, offer.tile, tile_name) if tiled and tile_name else offer.tile
            if slash:
                if tiled is None or not tiled.cuts_k:
                    raise PathError(f"{OPERATOR}: path {name!r} does not cut K, so it has no {parts} parts")
                tile = tiled.with_parts(tile, int(parts))
            made = Offer(path, tile, path.seconds(problem, tile)).plan(problem)
            return replace(made, path=text) if tile_name or slash else made
        except ObstacleError as error:
            obstacle = error.obstacle
    names = ", ".join(repr(each.name) for each in paths.values() if each is not path and not each.obstacle_to(problem))
    raise PathError(f"{OPERATOR} cannot take path {shown(text)} here: {obstacle}; these can: {names}")
