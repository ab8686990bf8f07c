"""What else runs a model: ONNX Runtime on the CPU, and torch's network of the same name on CUDA."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dmlvk.benchmark.networks.peers import choose_fastest, recorded_graph
from dmlvk.benchmark.peers.onnx_runtime import OnONNXRuntime, session_of
from dmlvk.benchmark.peers.peer import Peer, UnsupportedError, missing_package, package_version
from dmlvk.benchmark.peers.torch import cuda_absence, time_on_cuda
from dmlvk.benchmark.records import Record
from dmlvk.benchmark.timing import Times, time_on_host, warm_up

Array = npt.NDArray[Any]
# Floats of the host's nodes may differ by this share of the largest element. A level of a byte is more.
ROUNDING = 1e-3


@dataclass(frozen=True)
class ModelWork:
    """A model, and what dmlvk makes of it.

    feeds, found: what a run was given, and what it returned, by name.
    is_fused: whether a fusion may change bits of the outputs.
    """

    path: Path
    feeds: Mapping[str, Array]
    found: Mapping[str, Array]
    is_fused: bool


class ModelPeer(Peer):
    """What runs whole models."""

    @abstractmethod
    def measure(self, work: ModelWork, rounds: int) -> Record:
        """The times from arrays to arrays ("seconds"), and what else a peer can say.

        Raises UnsupportedError: the peer cannot do this work. Any other exception is a failure of the peer and is
            reported as such.
        """


class ONNXRuntimeSession(OnONNXRuntime, ModelPeer):
    """Its optimized run on all cores, and its plain run for comparison."""

    def measure(self, work: ModelWork, rounds: int) -> Record:
        times, plain, optimized = self.outputs(work, rounds)
        outputs = [
            {"name": name, **comparison(found, plain[name], optimized[name], work.is_fused)}
            for name, found in work.found.items()
        ]
        return {"seconds": times.record(), "outputs": outputs}

    def outputs(self, work: ModelWork, rounds: int) -> tuple[Times, dict[str, Any], dict[str, Any]]:
        """The times of the optimized run, and the outputs of the plain run and of the optimized one, by name."""
        plain = session_of(str(work.path), optimizes=False)
        plain_outputs = plain.run(None, dict(work.feeds))
        del plain
        optimized = session_of(str(work.path))
        names = [output.name for output in optimized.get_outputs()]
        results: list[Any] = []

        def step(_: int) -> None:
            results[:] = optimized.run(None, dict(work.feeds))

        times = time_on_host(step, rounds)
        return times, dict(zip(names, plain_outputs, strict=True)), dict(zip(names, results, strict=True))


def comparison(found: Any, plain: Any, optimized: Any, is_fused: bool) -> Record:
    """An output beside those of ONNX Runtime's plain run and of its optimized run: "equal", "different" or "wrong".

    Fused nodes may give other bits than the plain run. Without them an output is wrong if it differs by more than the
    host's floats may.
    """
    if not all(isinstance(each, np.ndarray) for each in (found, plain, optimized)):
        return {"result": "not compared"}
    for each, kind in ((plain, "plain"), (optimized, "optimized")):
        if found.dtype == each.dtype and found.shape == each.shape and found.tobytes() == each.tobytes():
            return {"result": "equal", "to": kind, "elements": found.size}
    if found.dtype != plain.dtype or found.shape != plain.shape:
        return {"result": "wrong", "to": f"plain, which is {plain.dtype} {plain.shape}", "elements": found.size}
    about = {"to": "plain", "elements": found.size, "different": int(np.count_nonzero(found != plain))}
    if found.dtype.kind not in "iuf":
        return {"result": "different" if is_fused else "wrong", **about}
    wide, right = found.astype(np.float64), plain.astype(np.float64)
    largest = float(np.nan_to_num(np.abs(wide - right), nan=np.inf).max(initial=0.0))
    limit = {"largest": largest} if np.isfinite(largest) else {}
    allowed = ROUNDING * float(np.nan_to_num(np.abs(right)).max(initial=0.0)) if found.dtype.kind == "f" else 0.0
    return {"result": "different" if is_fused or largest <= allowed else "wrong", **about, **limit}


class TorchGraph(ModelPeer):
    """torchvision's network in float16, channels last, its operations recorded in a CUDA graph.

    Its weights are random: it is there for its time.
    """

    name = "torch-graph"
    runs_on: ClassVar[str] = "CUDA"

    def absence(self) -> str | None:
        return cuda_absence() or missing_package("torchvision")

    def version(self) -> str:
        return f"{package_version('torch')}, torchvision {package_version('torchvision')}"

    def measure(self, work: ModelWork, rounds: int) -> Record:
        import torch

        name = torchvision_name(work.path.stem)
        choose_fastest()
        with torch.no_grad():
            network, pixels, image = _network_and_image(name, work)
            replay = self._prepared(network, image)

            def step(_: int) -> None:
                image.copy_(pixels)
                replay().float().cpu().numpy()

            warm_up(lambda: step(0))
            whole = time_on_host(step, rounds)
            on_device = time_on_cuda(lambda _: replay(), rounds)
        return {"seconds": whole.record(), "gpu_seconds": on_device.median, "network": name}

    def _prepared(self, network: Any, image: Any) -> Callable[[], Any]:
        """A function that replays the network on the image in its memory, and returns the output."""
        outputs: list[Any] = []

        def run() -> None:
            outputs[:] = [network(image)]

        graph = recorded_graph(run)

        def replay() -> Any:
            graph.replay()
            return outputs[0]

        return replay


class TorchCompile(TorchGraph):
    """The same network through torch.compile, its weights frozen, in CUDA graphs ("reduce-overhead")."""

    name = "torch-compile"

    def _prepared(self, network: Any, image: Any) -> Callable[[], Any]:
        import torch
        import torch._inductor.config as inductor

        torch._dynamo.reset()
        compiled = torch.compile(network, mode="reduce-overhead", dynamic=False)

        def replay() -> Any:
            return compiled(image)

        before, inductor.freezing = inductor.freezing, True
        try:
            start = time.perf_counter()
            while time.perf_counter() - start < 1.0:  # compiles, records its graphs, and warms up
                replay()
        finally:
            inductor.freezing = before
        return replay


def torchvision_name(stem: str) -> str:
    """The name of torchvision's network for a file's name without its suffix.

    Raises UnsupportedError: there is none, or the name fits several.
    """
    from torchvision import models

    wanted = _plain(stem)
    known = [name for name in models.list_models(models) if _plain(name).startswith(wanted)]
    exact = [name for name in known if _plain(name) == wanted]
    if len(exact or known) != 1:
        found = f"the name fits {', '.join(known)}" if known else "torchvision has no network of that name"
        raise UnsupportedError(f"{stem}: {found}; the file's name says which is meant, such as resnet50.onnx")
    return (exact or known)[0]


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _network_and_image(name: str, work: ModelWork) -> tuple[Any, Any, Any]:
    """The network, the model's image on the host, and memory for it on the device."""
    import torch
    from torchvision import models

    arrays = list(work.feeds.values())
    if len(arrays) != 1 or arrays[0].dtype != np.float32 or arrays[0].ndim != 4:
        raise UnsupportedError("torchvision's networks have one input, images of FLOAT32")
    network = models.get_model(name, weights=None).eval().cuda().half().to(memory_format=torch.channels_last)
    pixels = torch.from_numpy(arrays[0])
    return network, pixels, pixels.cuda().half().contiguous(memory_format=torch.channels_last)


PEERS: dict[str, ModelPeer] = {peer.name: peer for peer in (ONNXRuntimeSession(), TorchGraph(), TorchCompile())}
