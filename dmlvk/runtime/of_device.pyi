from dmlvk.runtime.device import Device
from dmlvk.runtime.engine import Engine

class OfDevice:
    engine: Engine
    @property
    def device(self) -> Device: ...
