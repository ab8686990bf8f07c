"""Vulkan: loader, devices, memory, pipelines, submission. Knows no operator.

Only this package touches the `vulkan` package.

The modules in layers: each imports only from the layers above its own, also for types alone.

    free_ranges  interrupts  library  memory_use  narrower_profile  specialization
    handles  host_threads
    instance
    device_properties
    physical_device
    configuration
    context
    command_buffers  descriptors  external  heaps  pipeline_cache  timeline  timestamps
    blocks  queue
    allocation  pauses  pipelines
    memory  recorder
    staging_ring
    transfers
    device

A device stands on its `context`: the VkDevice, its configuration, the ledger of its Vulkan objects, and its monitor.
Each part of the device gets the context and those other parts that it needs; `device` puts the parts together.
"""
