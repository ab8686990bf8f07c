"""What callers of ONNX Runtime pass to a session: used where it has a meaning here, else named in one warning."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

from dmlvk.onnx.errors import ModelError
from dmlvk.onnx.graph import HostOptions

# ONNX Runtime's GraphOptimizationLevel at which it fuses what is dequantized, computed and quantized.
FUSING_LEVEL = 2
# Attributes of SessionOptions that are used, or that change neither a result nor a file.
USED_OR_WITHOUT_EFFECT = {
    *("intra_op_num_threads", "inter_op_num_threads", "execution_mode", "graph_optimization_level"),
    *("log_severity_level", "log_verbosity_level", "logid", "use_per_session_threads", "profile_file_prefix"),
    *("enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "use_deterministic_compute"),
}
# Keys of SessionOptions.add_session_config_entry that may change a result, a file or the threads. It gives no list of
# what was set, so other keys go unseen; so do the initializers, sizes and libraries that its other methods add.
CONFIG_KEYS = (
    *("session.set_denormal_as_zero", "session.x64quantprecision", "optimization.enable_gelu_approximation"),
    *("session.disable_quant_qdq", "session.disable_double_qdq_remover", "session.enable_quant_qdq_cleanup"),
    *("session.intra_op.allow_spinning", "session.inter_op.allow_spinning", "session.intra_op_thread_affinities"),
    *("session.dynamic_block_base", "session.use_env_allocators", "session.disable_cpu_ep_fallback"),
    *("session.load_model_format", "session.model_external_initializers_file_folder_path", "ep.context_enable"),
    *("session.strict_shape_type_inference", "optimization.disable_specified_optimizers"),
)
# Arguments by keyword of ONNX Runtime's InferenceSession that have no meaning here.
OTHER_ARGUMENTS = ("disabled_optimizers", "enable_fallback", "read_config_from_model")
# Methods of ONNX Runtime's sessions that a session here does not have, and what takes their place.
ELSEWHERE = {
    "create_ortvalue_from_shape_and_type": "run takes arrays, and OrtValues of onnxruntime",
    "end_profiling": "session.profiled(feeds) gives the outputs and the time of each step",
    "get_input_epdevices": "session.devices are the devices, session.placement says where each node runs",
    "get_input_memory_infos": "inputs and outputs are arrays of the host",
    "get_output_memory_infos": "inputs and outputs are arrays of the host",
    "get_profiling_start_time_ns": "session.profiled(feeds) gives the outputs and the time of each step",
    "get_provider_graph_assignment_info": "session.placement says where each node runs, and why",
    "get_tuning_results": "`dmlvk tune` finds the fastest kernels of a device",
    "io_binding": "session.run takes and gives arrays; session.map keeps a device busy while arrays are copied",
    "release_captured_graph": "each run is recorded once and kept by itself",
    "run_with_iobinding": "session.run takes and gives arrays",
    "run_with_ortvaluevector": "session.run_with_ort_values takes and gives OrtValues",
    "set_ep_dynamic_options": "a session's options are given when it is made",
    "set_tuning_results": "`dmlvk tune` finds the fastest kernels of a device",
}
PROVIDER = "DmlvkExecutionProvider"


@dataclass(frozen=True)
class ModelMetadata:
    """What a model says about itself, by ONNX Runtime's names."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: onnx.ModelProto) -> ModelMetadata:
        """The metadata of a model."""
        version = model.model_version if model.HasField("model_version") else (1 << 63) - 1  # as ONNX Runtime has it
        entries = {entry.key: entry.value for entry in model.metadata_props}
        graph = model.graph
        names = (model.producer_name, graph.name, model.domain, model.doc_string, graph.doc_string)
        return cls(*names, version, entries)


def is_session_options(value: object) -> bool:
    """Whether a value is ONNX Runtime's SessionOptions, or what a session keeps of them."""
    return hasattr(value, "graph_optimization_level") and hasattr(value, "intra_op_num_threads")


def host_options(given: Any) -> HostOptions:
    """What the host's library is told because of a caller's SessionOptions, or by default."""
    if given is None or isinstance(given, HostOptions):
        return given or HostOptions()
    level, severity = int(given.graph_optimization_level), given.log_severity_level
    return HostOptions(
        given.intra_op_num_threads,
        given.inter_op_num_threads,
        "PARALLEL" in str(given.execution_mode),
        severity if severity != type(given)().log_severity_level else HostOptions().log_severity_level,
        None if level == int(type(given)().graph_optimization_level) else level,
    )


def fuses(options: HostOptions) -> bool:
    """Whether ONNX Runtime would fuse quantized neighbours at the level that it is given."""
    return options.graph_optimization_level is None or options.graph_optimization_level >= FUSING_LEVEL


def warn_of_ignored(options: Any, providers: Any, provider_options: Any, others: Mapping[str, Any]) -> None:
    """Warn once of all that a caller of ONNX Runtime has given and that has no meaning here.

    Raises ValueError: the providers are not as ONNX Runtime takes them.
    Raises TypeError: there is no such argument.
    """
    unknown = [name for name in others if name not in OTHER_ARGUMENTS]
    if unknown:
        raise TypeError(f"InferenceSession has no argument {unknown[0]!r}; help(dmlvk.onnx.InferenceSession) has all")
    ignored = [f"{name}={value!r}" for name, value in others.items()]
    if providers is not None or provider_options is not None:
        names = list(_provider_names(providers, provider_options))
        ignored += [f"providers={names!r}"] if names else []
    ignored += [f"SessionOptions.{name}" for name in _changed(options)]
    if ignored:
        warnings.warn(
            f"dmlvk.onnx.InferenceSession does not use {', '.join(ignored)}: nodes run on a Vulkan device, which "
            "device= names, and the others with ONNX Runtime on the processor",
            stacklevel=3,
        )


def _provider_names(providers: Any, options: Any) -> Iterator[str]:
    if providers is None:
        raise ValueError("provider_options are given without providers")
    if not isinstance(providers, Sequence) or isinstance(providers, (str, bytes)):
        raise ValueError(f"providers is a sequence, such as ['CPUExecutionProvider'], not {providers!r}")
    if options is not None:
        if not isinstance(options, Sequence) or not all(isinstance(each, Mapping) for each in options):
            raise ValueError(f"provider_options is a sequence of dicts, one for each provider, not {options!r}")
        if len(options) != len(providers):
            rule = f"provider_options has {len(options)}: one for each"
            raise ValueError(f"providers has {len(providers)} elements, {rule}")
    for provider in providers:
        if isinstance(provider, str):
            yield provider
        elif isinstance(provider, tuple) and [*map(type, provider)] == [str, dict] and options is None:
            yield provider[0]
        else:
            raise ValueError(f"providers has strings, or tuples of a string and a dict, not {provider!r}")


def _changed(options: Any) -> list[str]:
    """The attributes of SessionOptions that have another value than by default, and no meaning here."""
    if options is None or isinstance(options, HostOptions):
        return []
    default = type(options)()
    names = [name for name in dir(options) if name[0] != "_" and name not in USED_OR_WITHOUT_EFFECT]
    found = [name for name in names if not callable(getattr(options, name))]
    found = [name for name in found if getattr(options, name) != getattr(default, name)]
    if hasattr(options, "has_providers") and options.has_providers():
        found.append("add_provider")
    return found + [f"add_session_config_entry({key!r})" for key in CONFIG_KEYS if _has_entry(options, key)]


def _has_entry(options: Any, key: str) -> bool:
    """Whether SessionOptions have an entry of their configuration: asked for another one, they raise RuntimeError."""
    try:
        options.get_session_config_entry(key)
    except (AttributeError, RuntimeError):
        return False
    return True


def require_run_options(options: Any) -> None:
    """Refuse RunOptions that end a run, and what are no RunOptions.

    Raises TypeError: they are none of ONNX Runtime's.
    Raises ModelError: they tell a run to end.
    """
    if options is None:
        return
    if not hasattr(options, "terminate"):
        raise TypeError(f"run_options is an onnxruntime.RunOptions or None, not {type(options).__name__}")
    if options.terminate:
        raise ModelError("the run ends before it begins, because run_options.terminate is True")


def names_of(output_names: Any) -> list[str]:
    """The names of outputs that a caller asks for; none for all.

    Raises TypeError: they are no sequence of names.
    """
    if output_names is None or (isinstance(output_names, str) and not output_names):
        return []
    if isinstance(output_names, (str, bytes)) or not isinstance(output_names, Iterable):
        raise TypeError(f"output_names is a sequence of names or None: [{output_names!r}], not {output_names!r}")
    names = list(output_names)
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise TypeError(f"output_names has names, not {reprlib.repr(wrong[0])}")
    return [str(name) for name in names]
