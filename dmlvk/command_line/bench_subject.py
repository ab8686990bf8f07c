"""What `dmlvk bench` measures: operators, a model or a network, each with options of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from rich.console import Console

from dmlvk.command_line.bench_record import Outputs
from dmlvk.command_line.terminal import COMPILED, echo, one_line, require_names, shown_progress

if TYPE_CHECKING:
    import dmlvk
    from dmlvk.benchmark.choice import Choice
    from dmlvk.benchmark.networks.network import Network
    from dmlvk.benchmark.records import Keep, Record
    from dmlvk.conformance.case import Case


class Subject(Enum):
    """What is measured. The value is the words of a message."""

    OPERATORS = "operators"
    MODEL = "--model measures a whole model"
    NETWORK = "--network measures all layers of a network"


# Options that each subject has besides those of all.
COMMON = {"selector", "batches", "rounds", "peers", "dispatches", "json_path", "plot_path", "markdown_path"}
OPTIONS = {Subject.MODEL: COMMON | {"model"}, Subject.NETWORK: COMMON | {"network", "size", "layouts", "profiles"}}


@dataclass
class BenchRequest:
    """What the command line asks of `dmlvk bench`: see the options' help."""

    model: Path | None
    network: str | None
    selector: str | None
    profiles: tuple[str, ...]
    scheduler: str | None
    operators: tuple[str, ...]
    patterns: tuple[str, ...]
    types: tuple[str, ...]
    layouts: tuple[str, ...]
    path: str | None
    filter_kind: str
    parameters_kind: str
    size: str | None
    batches: tuple[int, ...]
    megabytes: int | None
    rounds: int
    peers: tuple[str, ...]
    dispatches: bool
    lists: bool
    outputs: Outputs

    def choice(self) -> Choice:
        """The cases of operators, and how they are measured."""
        from dmlvk.benchmark.choice import Choice

        return Choice(
            operators=[name.lower() for name in self.operators],
            patterns=self.patterns,
            types=self.types,
            layouts=self.layouts,
            path=self.path,
            filter_is_owned=self.filter_kind == "owned",
            parameters_are_owned=self.parameters_kind == "owned",
            size=self.size,
            batch=self.batches[0] if self.batches else None,
            data_bytes=bytes_of(self.megabytes),
            rounds=self.rounds,
            peers=[name for name in self.peers if name != "none"],
        )


def bytes_of(megabytes: int | None) -> int | None:
    """The bytes that --megabytes names."""
    if megabytes is not None and megabytes & (megabytes - 1):
        raise click.BadParameter(f"{megabytes} is not a power of two", param_hint="--megabytes")
    return None if megabytes is None else megabytes << 20


def batches_or(batches: Sequence[int], default: list[int]) -> list[int]:
    """The batches that --batch names, each once."""
    return list(dict.fromkeys(batches)) or default


def network_layouts(layouts: Sequence[str]) -> list[str]:
    """The layouts that --layout names, in which a network's layers run."""
    from dmlvk.benchmark.networks.work import LAYOUTS

    names = [layout.lower() for layout in layouts]
    require_names("--layout", names, LAYOUTS)
    return [layout for layout in LAYOUTS if not names or layout in names]


def required_network(name: str, size: str | None) -> Network:
    """The network that --network and --size name."""
    from dmlvk.benchmark.networks import NETWORKS, SIZES

    require_names("--network", [name], NETWORKS)
    return NETWORKS[name](SIZES[size or "full"])


def opened(selector: str | None, profiles: Sequence[str]) -> dmlvk.Device:
    """A device with timestamps, as if it had no more than each of some profiles leaves it.

    Raises click.BadParameter: there is no such profile.
    Raises DeviceError: there is no such device.
    """
    import dmlvk
    from dmlvk.conformance.profiles import PROFILES, narrow

    require_names("--profile", profiles, PROFILES)
    if not profiles:
        return dmlvk.Device(selector, timestamps=True)
    with dmlvk.Device(selector) as whole:
        profile = whole.profile
    for name in profiles:
        profile = narrow(profile, name)
    return dmlvk.Device(selector, profile=profile, timestamps=True)


def name_profiles(record: Record, profiles: Sequence[str]) -> None:
    """Let a record say that its device was narrowed."""
    text = f" as {' and '.join(profiles)}" if profiles else ""
    if not record["device"]["name"].endswith(text):
        record["device"]["name"] += text


def require_subject(context: click.Context) -> Subject:
    """What the options ask for.

    Raises click.UsageError: an option belongs to another subject.
    """
    given = [
        parameter
        for parameter in context.command.params
        if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]
    names = {parameter.name for parameter in given}
    subject = Subject.OPERATORS
    if names & {"model", "network"}:
        subject = Subject.MODEL if "model" in names else Subject.NETWORK
    if subject in OPTIONS:
        for parameter in given:
            if parameter.name not in OPTIONS[subject]:
                raise click.UsageError(f"{subject.value}: {parameter.opts[0]} does not belong to it", context)
    elif len(context.params["batches"]) > 1:
        raise click.UsageError("--batch is one number, unless --model or --network is given", context)
    return subject


def required_cases(choice: Choice, is_cpu: bool) -> list[Case]:
    """The cases of a choice.

    Raises click.UsageError: an operator is unknown, or a pattern names only cases of operators that are not chosen.
    Raises click.ClickException: there is no such case.
    """
    from dmlvk.benchmark.cases import OPERATORS, cases, select

    require_names("--operator", choice.operators, OPERATORS)
    for pattern in choice.patterns if choice.operators else ():
        named = dict.fromkeys(case.groups[0] for case in select(cases(choice.scale(is_cpu)), patterns=[pattern]))
        if named and not set(named) & set(choice.operators):
            raise click.UsageError(
                f"--case {pattern!r} names cases of {' and '.join(named)}, but --operator chooses "
                f"{' and '.join(choice.operators)}: leave one of the two out"
            )
    every = cases(choice.scale(is_cpu))
    for option, key, names in (("--type", "type", choice.types), ("--layout", "layout", choice.layouts)):
        known = dict.fromkeys(case.parameters[key].upper() for case in every if key in case.parameters)
        require_names(option, [name.upper() for name in names], known)
    chosen = choice.chosen(is_cpu)
    if not chosen:
        raise click.ClickException("no case matches the options; `dmlvk bench --list` prints the names")
    for option, key, names in (("--type", "type", choice.types), ("--layout", "layout", choice.layouts)):
        found = {case.parameters.get(key, "").upper() for case in chosen}
        for name in names:
            if name.upper() not in found:
                raise click.UsageError(f"{option} {name}: no case that the other options choose has it; leave it out")
    for operator in choice.operators:
        if operator not in {case.groups[0] for case in chosen}:
            raise click.UsageError(f"--operator {operator}: the other options choose none of its cases; leave it out")
    for pattern in choice.patterns:
        if not select(chosen, patterns=[pattern], types=choice.types):
            message = f"--case {pattern!r} matches none of the chosen cases; `dmlvk bench --list` prints the names"
            raise click.UsageError(message)
    return chosen


def measure_operators(request: BenchRequest, terminal: Console, keep: Keep) -> Record | None:
    """Measure cases of operators, beside the peers of these names; or only list the cases, and return None."""
    from dmlvk.benchmark import harness
    from dmlvk.benchmark.peers import PEERS

    names, choice = request.peers, request.choice()
    require_names("--peer", names, [*PEERS, "none"])
    with opened(request.selector, request.profiles) as device:
        chosen = required_cases(choice, is_cpu(device))
        if request.lists:
            for case in chosen:
                echo(case.name)
            return None
        # On a CPU driver, peers that compile for Vulkan take minutes: they run only if requested.
        slow = [name for name, peer in PEERS.items() if is_cpu(device) and peer.runs_on == "Vulkan"]
        left_out = dict.fromkeys((name for name in PEERS if name not in names), "not asked for")
        if not names:
            left_out = dict.fromkeys(slow, "left out on a CPU driver, unless --peer names it")
        taking_part = [name for name in PEERS if name not in left_out]
        settings = harness.OperatorSettings(choice.scale(is_cpu(device)), choice.rounds, taking_part, left_out)
        with shown_progress(terminal, len(chosen) + 1) as progress:
            return harness.run(device, chosen, settings, progress, keep)


def measure_model(request: BenchRequest, terminal: Console, keep: Keep) -> Record:
    """Measure a model, beside ONNX Runtime and, on a GPU, torch, unless the names of peers leave them out."""
    import dmlvk

    try:
        from dmlvk.benchmark.model import measurement
        from dmlvk.benchmark.model.peers import PEERS
        from dmlvk.onnx import ModelError
    except ImportError as error:
        raise click.ClickException(one_line(error)) from error
    assert request.model is not None
    names = request.peers
    require_names("--peer", names, [*PEERS, "none"])
    sizes: list[int | None] = [*batches_or(request.batches, [])] or [None]
    with dmlvk.Device(request.selector, timestamps=True) as device, shown_progress(terminal, len(sizes)) as progress:
        device.compile_progress = progress.parts(COMPILED)
        # A GPU's library is beside the point on a CPU driver.
        chosen = names or [name for name, peer in PEERS.items() if peer.runs_on == "CPU" or not is_cpu(device)]
        try:
            return measurement.run(device, request.model, sizes, request.rounds, chosen, progress, keep)
        except ModelError as error:
            raise click.ClickException(one_line(error)) from error


def measure_network(request: BenchRequest, terminal: Console, keep: Keep) -> Record:
    """Measure a network's convolutions, beside the peers of these names."""
    from dmlvk.benchmark.networks import measurement
    from dmlvk.benchmark.networks.peers import PEERS

    names = request.peers
    assert request.network is not None
    network, layouts = required_network(request.network, request.size), network_layouts(request.layouts)
    require_names("--peer", names, [*PEERS, "none"])
    with opened(request.selector, request.profiles) as device:
        # On a CPU driver, ONNX Runtime on the same CPU is the peer; on a GPU, libraries that run there.
        chosen = [each for each, peer in PEERS.items() if (peer.runs_on == "CPU") == is_cpu(device)]
        reason = "left out on such a device, unless --peer names it"
        if names:
            chosen, reason = [each for each in PEERS if each in names], "not asked for"
        settings = measurement.NetworkSettings(
            batches_or(request.batches, [1] if is_cpu(device) else [1, 8, 64]),
            layouts,
            request.rounds,
            chosen,
            {each: reason for each in PEERS if each not in chosen},
        )
        with shown_progress(terminal, measurement.step_count(network, settings)) as progress:
            return measurement.run(device, network, settings, progress, keep)


def is_cpu(device: dmlvk.Device) -> bool:
    """Whether a device is a CPU's driver, on which each thing takes long."""
    from dmlvk.device_profile import DeviceType

    return device.profile.device_type is DeviceType.CPU


MEASURE: Mapping[Subject, Callable[[BenchRequest, Console, Keep], Record | None]] = {
    Subject.OPERATORS: measure_operators,
    Subject.MODEL: measure_model,
    Subject.NETWORK: measure_network,
}
