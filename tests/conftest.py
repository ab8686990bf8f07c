"""Set-up for all tests: the drivers to run on, the validation layer, the settings of hypothesis.

A test that takes `device` runs on lavapipe. If it is marked `every_driver`, it runs on SwiftShader as well; if the mark
names a sample, as in `every_driver(name=[value, ...])`, only sets of parameters with one of these values do. With
`pytest --every-driver` and in `make test-thorough` every test runs on each driver. To run all of them on other devices,
name parts of these devices' names:

    DMLVK_TEST_DEVICES="GeForce,Radeon" pytest
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing

import pytest
from hypothesis import HealthCheck, settings

from tests.amount import THOROUGH
from tools import drivers

# Without bytecode, each of the hundreds of programs that tests start compiles all of dmlvk, which is half of its time,
# and each run compiles all tests anew.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""
sys.dont_write_bytecode = False
# The Vulkan loader and dmlvk read these when they are first used, so they are set before dmlvk is imported.
os.environ.setdefault("DMLVK_VALIDATE", "1")
# So that a test finds the kernels of its plan; tests of the background set it themselves.
os.environ.setdefault("DMLVK_BACKGROUND", "0")
has_named_devices = "DMLVK_TEST_DEVICES" in os.environ
os.environ.update(drivers.layer_environment() if has_named_devices else drivers.environment())
# Programs that a shell starts in the background ignore Ctrl-C, but the tests of interrupts send it to themselves.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
_cache = tempfile.TemporaryDirectory(prefix="dmlvk-tests-")
os.environ["DMLVK_CACHE_DIR"] = _cache.name
# Its import raises an ImportError. A crash of ONNX Runtime would end the run, so tests use it through tests/oracle.py.
sys.modules["onnxruntime"] = None  # type: ignore[assignment]

import dmlvk  # noqa: E402
from dmlvk.vulkan.instance import VALIDATION_LAYER, Instance  # noqa: E402
from dmlvk.vulkan.library import raise_messages, vk  # noqa: E402

DEVICE_NAMES = [name.strip() for name in os.environ.get("DMLVK_TEST_DEVICES", "llvmpipe,SwiftShader").split(",")]

# By day one in so many sets of parameters runs, of a test or a value with the mark; the first mark counts.
SHARES = {"sixteenth_by_day": 16, "quarter_by_day": 4, "half_by_day": 2}

# Numbers of new objects before a collection of the youngest, of such collections before one of the next generation, and
# of those before one of all.
COLLECTION_THRESHOLDS = (50_000, 20, 100)

_checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
settings.register_profile("default", deadline=None, max_examples=50, suppress_health_check=_checks)
# The same examples in each run, so that everyone can reproduce a failure in CI.
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-driver", action="store_true", help="run each test that takes a device on each driver")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the drivers of a test that takes the fixture `device`; other tests have parameters of this name."""
    parameters = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    parameters = [name for names in parameters for name in (names.split(",") if isinstance(names, str) else names)]
    if "device" not in metafunc.fixturenames or "device" in parameters:
        return
    has_every = has_named_devices or THOROUGH or metafunc.config.getoption("--every-driver")
    has_every = has_every or metafunc.definition.get_closest_marker("every_driver") is not None
    metafunc.parametrize("device", DEVICE_NAMES if has_every else DEVICE_NAMES[:1], indirect=True, scope="session")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collection makes some million objects that all stay: the garbage collector need not walk them, then or later.

    Tests make many objects that stay as well, such as syntax trees and plans: with Python's thresholds a tenth of their
    time would be collections.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*COLLECTION_THRESHOLDS)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out by day what is `nightly`, other shares of what runs in parts, and what is past a driver's sample."""
    if THOROUGH or config.getoption("--every-driver"):
        return
    by_day: list[pytest.Item] = []
    at_night: list[pytest.Item] = []
    for item in items:
        is_left = item.get_closest_marker("nightly") is not None or _is_other_share(item) or _is_past_sample(item)
        (at_night if is_left else by_day).append(item)
    if at_night:
        config.hook.pytest_deselected(items=at_night)
        items[:] = by_day


def _is_other_share(item: pytest.Item) -> bool:
    """Whether one of SHARES leaves an item to the night.

    The sum of its values' places in their lists decides. A value of one parameter still meets each value of another, if
    there is a third parameter.
    """
    call = getattr(item, "callspec", None)
    divisor = next((number for name, number in SHARES.items() if item.get_closest_marker(name)), 1)
    if has_named_devices or divisor == 1 or call is None:
        return False
    places, of_fixtures = 0, set(call.params) - {"device"}
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        given = tuple(call.params[name] for name in names)
        lists = [getattr(each, "values", each if len(names) > 1 else (each,)) for each in mark.args[1]]
        places += [tuple(values) for values in lists].index(given)
        of_fixtures -= set(names)
    return (places + sum(call.indices[name] for name in of_fixtures)) % divisor != 0


def _is_past_sample(item: pytest.Item) -> bool:
    """Whether `every_driver(name=[value, ...])` leaves an item on a further driver to the night."""
    mark, call = item.get_closest_marker("every_driver"), getattr(item, "callspec", None)
    if has_named_devices or mark is None or call is None or call.params.get("device") in (None, DEVICE_NAMES[0]):
        return False
    return any(call.params[name] not in values for name, values in mark.kwargs.items())


def pytest_sessionstart(session: pytest.Session) -> None:
    """Without the validation layer, end at once with one message: each test that opens a device would fail of it."""
    if not vk.validates or hasattr(session.config, "workerinput"):
        return
    try:
        with closing(Instance()) as probe:
            probe.open()
    except dmlvk.DeviceError as error:
        if VALIDATION_LAYER in str(error):
            message = f"{error}. `{drivers.COMMAND}` gets it for the tests; DMLVK_VALIDATE=0 runs them without it"
            raise pytest.UsageError(message) from None


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> Iterator[dmlvk.Device]:
    """An open device, on each driver of a test in turn. If a driver is missing, the test fails; nothing is skipped."""
    names = [info.name for info in dmlvk.devices()]
    if not any(request.param.lower() in name.lower() for name in names):
        pytest.fail(
            f"no Vulkan device has {request.param!r} in its name; there are {names or 'none'}. "
            f"Get the test drivers with `{drivers.COMMAND}`, or name devices in DMLVK_TEST_DEVICES",
            pytrace=False,
        )
    with dmlvk.Device(request.param) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _no_validation_messages() -> Iterator[None]:
    """A message of the validation layer that no call has raised yet fails the test that caused it."""
    yield
    raise_messages()
