"""The version, read by Python, CMake and the build backend."""

__version__ = "0.2.0"
