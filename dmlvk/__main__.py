"""`python -m dmlvk` is the command `dmlvk`."""

from __future__ import annotations

from dmlvk.command_line import main

if __name__ == "__main__":
    main()
