"""Mistakes in the general kernel, and in how special kernels take over from it."""

from __future__ import annotations

from tests.mutants.mutant import HostMutant, Mutant

GENERAL = ("quantized_linear_convolution:general",)
TAKE_OVER = ("quantized_linear_convolution:take_over",)
DIRECT = "quantized_linear_convolution/direct.comp"
LAST_CHANNEL = "push.tap_channels - (GENERAL != 0 && push.tap_channels > 1 ? 1 : 0)"

MUTANTS = (
    Mutant(
        "the general kernel skips the last channel",
        DIRECT,
        (("for (uint c = 0; c < push.tap_channels; ++c)", f"for (uint c = 0; c < {LAST_CHANNEL}; ++c)"),),
        GENERAL,
        "general",
    ),
    Mutant(
        "the general kernel skips the last channel, and the special one that takes over does not",
        DIRECT,
        (("for (uint c = 0; c < push.tap_channels; ++c)", f"for (uint c = 0; c < {LAST_CHANNEL}; ++c)"),),
        TAKE_OVER,
    ),
    Mutant(
        "the general kernel takes an unsigned filter for a signed one",
        DIRECT,
        (("(unsigned_types() & 2) << 6", "(GENERAL != 0 ? 0 : unsigned_types() & 2) << 6"),),
        GENERAL,
        "general",
    ),
    HostMutant(
        "the special kernel gets what the general one derived from owned tensors",
        "runtime/implementation.py",
        (
            (
                "                self._successor = Initialized(special, self.owned)\n",
                "                self._successor = Initialized(special, self.owned)\n"
                "                self._successor._memory.update(self._memory)\n",
            ),
        ),
        TAKE_OVER,
        function="Initialized.latest",
    ),
    HostMutant(
        "calls after a take-over keep the temporary memory of those before, of whatever size",
        "runtime/implementation.py",
        (("            if known is not None and known.size >= size:\n", "            if known is not None:\n"),),
        TAKE_OVER,
        function="Initialized.bind",
    ),
    HostMutant(
        "a take-over within a submission: the last stage is the general kernel's",
        "runtime/implementation.py",
        (
            (
                "            return latest.bind(self._memory)\n",
                "            special, general = latest.bind(self._memory), self._initialized.bind(self._memory)\n"
                "            self.kept = general\n"
                "            special.stages = special.stages[:-1] + general.stages[-1:]\n"
                "            return special\n",
            ),
        ),
        TAKE_OVER,
        function="Rebinding.latest",
    ),
    HostMutant(
        "after a take-over a binding that was submitted alone runs as it was recorded before",
        "runtime/binding.py",
        (
            (
                "        kept = object.__new__(Binding)\n"
                "        kept.__dict__.update(self.__dict__)\n"
                "        return kept\n",
                "        return self\n",
            ),
        ),
        TAKE_OVER,
        function="Binding.latest",
    ),
    HostMutant(
        "a take-over within a submission: work that runs loses its memory and descriptors",
        "runtime/command_writer.py",
        (("kept = [binding.kept for binding in bindings]\n", "kept: list[object] = []\n"),),
        TAKE_OVER,
        function="CommandWriter.compose",
    ),
    HostMutant(
        "after a take-over a binding keeps the general kernel's dispatches, and not their memory",
        "runtime/binding.py",
        (
            (
                "        self.__dict__.update(other.__dict__)\n",
                "        stages = self.stages\n"
                "        self.__dict__.update(other.__dict__)\n"
                "        self.stages = stages\n",
            ),
        ),
        TAKE_OVER,
        function="Binding._become",
    ),
    HostMutant(
        "a sequence is recorded again with the dispatches of its last binding alone",
        "runtime/sequence.py",
        (
            (
                "batch, queries = self._vulkan.monitor.run(self._record, bindings)\n",
                "batch, queries = self._vulkan.monitor.run(self._record, bindings[-1:])\n",
            ),
        ),
        TAKE_OVER,
        function="Sequence._record_again",
    ),
)
