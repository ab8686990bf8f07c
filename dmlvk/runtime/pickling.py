"""Compiled operators in pickle: the recipe to make one anew, in another process and on another device.

The recipe is the descriptor and the contents of the tensors that are OWNED_BY_DML. Where it is loaded, the operator is
compiled for the default device of that process ($DMLVK_DEVICE, else the best one). That device chooses its own kernel:
all kernels give the same bits.
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping

from dmlvk.operators import OperatorDesc
from dmlvk.runtime.compiled_operator import CompiledOperator
from dmlvk.runtime.layouts import plain
from dmlvk.runtime.shared_devices import DeviceName, named_device


def recipe(operator: CompiledOperator) -> tuple[OperatorDesc, dict[str, bytes]]:
    """The descriptor, and by field the whole memory of each tensor that is OWNED_BY_DML.

    Raises DeviceError: the device is closed or lost.
    """
    owned = {field: tensor.read_bytes() for field, tensor in operator.owned_tensors().items()}
    return operator.desc, owned


def made_anew(desc: OperatorDesc, owned: Mapping[str, bytes], device: DeviceName = None) -> CompiledOperator:
    """The operator of a recipe.

    device: defaults to the default device of this process, which is opened once and kept.
    Raises DeviceError: there is no device.
    """
    chosen = named_device(device)
    operator = chosen.compile(desc)
    if owned:
        tensors = {field: chosen.tensor(plain(desc.tensors[field])) for field in owned}
        for field, tensor in tensors.items():
            tensor.write_bytes(owned[field])
        operator.initialize(**tensors)
    return operator


# The class cannot say it itself: it is made by devices, and this module opens one.
copyreg.pickle(CompiledOperator, lambda operator: (made_anew, recipe(operator)))
