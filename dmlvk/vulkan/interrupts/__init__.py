"""What keeps a device whole when something strikes in the middle of a call.

Between any two steps of a program, Python may run a signal handler (Ctrl-C) or the finalizer of an object. It may raise
an exception there, or call dmlvk again. Meanwhile other threads use the device, close it, or lose it; or the process
forks. Four parts guard against that, and all other modules of `dmlvk.vulkan` are written as if nothing could strike:

    locks           locks that an exception cannot leave taken
    availability    whether the device can be used: it may be closed, lost, or inherited through a fork
    monitor         state that one thread at a time changes; a change left half done is repaired before the next
    visits          periods in which a thread needs the device to stay open; closing waits until they end

**What to use.** State that several calls share belongs to a Monitor, and is changed inside `Monitor.run` alone. What
reads or writes mapped memory, or waits for the device, is a visit (`Visits.during`). A lock is taken by `with`, with
the work on the same line: an exception between two lines would leave it taken.

**What to expect.** A call from a handler that strikes in the middle of a change of the same thread is refused with a
ReentryError, as it would see half of the change. Everything else either happens whole, or not at all.
tests/runtime/test_strikes.py raises an exception at each step of each public call, and holds the device to this.
"""
