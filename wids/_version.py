"""The version of the package, also read by the build."""

__version__ = "1.0.0.dev0"
