"""The kernel conformance suite: does a device give the reference's bits for every case?"""
