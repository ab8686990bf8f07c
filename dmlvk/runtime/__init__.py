"""Ties descriptors, plans and Vulkan together: devices, tensors, compiled operators, bindings, sequences."""
