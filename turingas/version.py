"""The version of the distribution, for pyproject.toml too."""

__version__ = "0.1.0"
