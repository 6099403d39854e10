"""Where things lie in a checkout."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
SUPPORT = ROOT / "tests" / "support"
C_SOURCES = SUPPORT / "native"  # programs and plugins that tests compile
