"""Objects that represent something on a device are not copied by Python's own means."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import dmlvk
from tests.vulkan.variants import copy_desc

DESC = dmlvk.TensorDesc("int32", (64,))

MAKE: dict[str, Callable[[dmlvk.Device], object]] = {
    "Device": lambda device: device,
    "Tensor": lambda device: device.tensor(DESC),
    "Buffer": lambda device: device.buffer(64),
    "CompiledOperator": lambda device: device.compile(copy_desc(DESC)),
    "Binding": lambda device: device.compile(copy_desc(DESC)).bind(
        input_tensor=device.tensor(DESC), output_tensor=device.tensor(DESC)
    ),
    "Sequence": lambda device: device.sequence([]),
    "Submission": lambda device: device.submit([]),
}


# A compiled operator travels by pickle: tests/onnx/test_devices.py.
MEANS: dict[str, Callable[[object], object]] = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": pickle.dumps}
REFUSED = [(name, means) for name in MAKE for means in MEANS if (name, means) != ("CompiledOperator", "pickle")]


@pytest.mark.parametrize(("name", "means"), REFUSED)
def test_a_copy_is_refused_with_what_to_do_instead(device: dmlvk.Device, name: str, means: str) -> None:
    with pytest.raises(TypeError, match=rf"a dmlvk\.{name} cannot be copied( or pickled)?: \w+"):
        MEANS[means](MAKE[name](device))


def test_descriptors_are_copied(device: dmlvk.Device) -> None:
    desc = copy_desc(DESC)
    assert copy.deepcopy(desc) == pickle.loads(pickle.dumps(desc)) == desc
    values = np.arange(64, dtype=np.int32)
    assert (device.tensor(device.tensor(values).numpy()).numpy() == values).all()
