from dmlvk.benchmark.peers.peer import *


class IREE(Peer):
    name = "iree"
    runs_on = "Vulkan"

    def absence(self):
        return "x"

    def version(self):
        return "x"

    def measure(self, *a):
        raise UnsupportedError("x")
