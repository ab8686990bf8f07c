"""Measures a network's convolutions: each of them, and all in their order, in several batches and both layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import dmlvk
from dmlvk._common.arguments import as_argument
from dmlvk.benchmark.networks.chain import Measured, measure_chain, measure_floor, measure_layer
from dmlvk.benchmark.networks.network import Network
from dmlvk.benchmark.networks.peers import PEERS
from dmlvk.benchmark.networks.timing import ChainTimes
from dmlvk.benchmark.networks.work import LAYOUTS, work_of
from dmlvk.benchmark.peers.peer import taking_part
from dmlvk.benchmark.records import NETWORK, Keep, Progress, Record, circumstances, one_line
from dmlvk.benchmark.timing import warm_up
from dmlvk.device_profile import DeviceType


@dataclass(frozen=True)
class NetworkSettings:
    """The settings of a run.

    layouts: "nhwc", "nchw".
    rounds: timed runs of each measured item; fewer if they take long.
    left_out: names of the peers that are not measured, and why.
    """

    batches: Sequence[int]
    layouts: Sequence[str] = LAYOUTS
    rounds: int = 20
    peers: Sequence[str] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rounds = as_argument("rounds", self.rounds, 1, None, "each thing is timed at least once", ValueError)
        object.__setattr__(self, "rounds", rounds)


def step_count(network: Network, settings: NetworkSettings) -> int:
    """How often `run` reports its progress."""
    return 1 + len(settings.batches) * len(settings.layouts) * (len(network.counts) + 1)


def run(
    device: dmlvk.Device,
    network: Network,
    settings: NetworkSettings,
    progress: Progress = lambda name: None,
    keep: Keep = lambda record: None,
) -> Record:
    """Measure a network's convolutions.

    device: opened with `timestamps=True`.
    """
    progress("floor")
    for layer in network.counts:
        work_of(layer)  # the host takes long for it, and the device would cool down meanwhile
    _warm_up(device)
    peers, about_peers = taking_part((PEERS[name] for name in settings.peers), settings.left_out)
    runs: list[Record] = []
    record: Record = {
        "kind": NETWORK,
        **circumstances(device, settings.rounds),
        "network": {"name": network.name, "size": network.size, "layers": len(network.layers)},
        "floor": _times(measure_floor(device, settings.rounds)),
        **about_peers,
        "runs": runs,
    }
    for batch, layout in product(settings.batches, settings.layouts):
        rows: list[Record] = []
        _warm_up(device)
        runs.append({"batch": batch, "layout": layout, "layers": rows})
        for layer, count in network.counts.items():
            progress(f"batch {batch}, {layout}, {layer.name}")
            found = _attempt(measure_layer, device, layer, batch, layout, settings.rounds)
            trials = [peer.trial(_trial, peer.measure_layer, layer, batch, layout, settings.rounds) for peer in peers]
            rows.append({"name": layer.name, "count": count, **found, "peers": trials})
            keep(record)
        progress(f"batch {batch}, {layout}, all layers in their order")
        found = _attempt(measure_chain, device, network.layers, batch, layout, settings.rounds)
        arguments = (network.layers, batch, layout, settings.rounds)
        trials = [peer.trial(_trial, peer.measure_chain, *arguments) for peer in peers]
        runs[-1]["chain"] = {**found, "peers": trials}
        keep(record)
    return record


def _warm_up(device: dmlvk.Device) -> None:
    if device.profile.device_type is not DeviceType.CPU:
        warm_up(lambda: measure_floor(device, 1))


def _attempt(measure: Callable[..., Measured], device: dmlvk.Device, *arguments: Any) -> Record:
    """The record of a measurement, or why there is none: a large batch may be too large for the device."""
    try:
        found = measure(device, *arguments)
    except dmlvk.DeviceError as error:
        if device.vulkan.is_lost:
            raise
        return {"failure": one_line(error)}
    paths = list(dict.fromkeys(plan.path for plan in found.plans))
    return {
        "paths": paths,
        "dispatches": found.dispatch_count,
        "seconds": _times(found.times),
        "predicted_seconds": found.predicted,
        "correct": not found.wrong,
        "wrong": list(found.wrong),
    }


def _trial(measure: Callable[..., ChainTimes], *arguments: Any) -> Record:
    return {"seconds": _times(measure(*arguments))}


def _times(times: ChainTimes) -> dict[str, Any]:
    """By "device" and "wall"; "device" is None for a library on the CPU."""
    return {"device": None if times.device is None else times.device.record(), "wall": times.wall.record()}
