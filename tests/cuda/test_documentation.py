"""The code with CUDA in README and in the documentation runs as it stands: `make test-cuda`."""

from __future__ import annotations

import pytest

from tests.documentation.blocks import Program, programs


@pytest.mark.parametrize("program", programs("cuda"), ids=lambda program: program.name)
def test_a_page_runs(program: Program) -> None:
    program.run()
