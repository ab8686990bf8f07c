from dmlvk.benchmark.peers.peer import *


class NCNN(Peer):
    name = "ncnn"
    runs_on = "Vulkan"

    def absence(self):
        return "x"

    def version(self):
        return "x"

    def measure(self, *a):
        raise UnsupportedError("x")
