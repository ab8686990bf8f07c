"""The version of dmlvk. The one place where it is written: pyproject.toml reads it from here."""

__version__ = "1.0.0rc1"
