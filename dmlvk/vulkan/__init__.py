"""Vulkan: loader, devices, memory, pipelines, submission. Knows no operator.

The only place that touches the `vulkan` package.
"""
