"""The kernel conformance suite: does a device give, for every case, the bits that the reference gives?"""
