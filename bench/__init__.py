"""Measurements for developers, beside `dmlvk bench`: the host's part of a call, transfers, start-up."""
