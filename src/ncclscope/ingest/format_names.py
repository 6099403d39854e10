"""Names of the formats that `ncclscope import` reads, in the order in which they are tried.

The surest signs come first. The module of a format has its name, with _ for -.
"""

FORMAT_NAMES = (
    "nsys",
    "inspector",
    "ncclsee",
    "chrome",
    "comma",
    "flight-recorder",
    "nccl-tests",
    "nccl-log",
)
