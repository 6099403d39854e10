"""The timeline on 10^8 events: first picture, index, tiles, memory.

The capture is simulated (tests/writer): only its amount matters here. Other work on the machine
makes wall times meaningless, so bars are held against CPU times: of the first picture, of the index
by core, of each tile.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.model_speed import verdict
from benchmarks.results import ROOT, publish, table
from tests.support.writer import SyntheticSpec, synthetic

RANKS, OPERATIONS = 64, 223_300  # 7 events each: 10^8
COARSE_BAR_S, INDEX_BAR, TILE_BAR_MS = 2.0, 5e6, 50.0
CORES = 2  # for which the index's bar is meant

_COARSE = """
import json, sys, time
from pathlib import Path
from ncclscope.web.routes import Routes
from ncclscope.web.session import Timeline
began, cpu = time.perf_counter(), time.process_time()
timeline = Timeline(Path(sys.argv[1]))
timeline._show_preview()
routes, scene = Routes(timeline), timeline.scene
span = scene.last_ns - scene.first_ns
zoom = (span // 1200).bit_length()
routes("api/scene", {})
for place in range(span // (512 << zoom) + 1):
    rows = f"0-{len(scene.rows) - 1}"
    routes("api/tile", {"z": str(zoom), "i": str(place), "rows": rows})
print(json.dumps({"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}))
"""
_INDEX = """
import json, resource, sys, time
from pathlib import Path
from ncclscope.capture.housekeeping import process_folders
from ncclscope.web.session import index_process
began, cpu, bars = time.perf_counter(), time.process_time(), 0
for number, folder in enumerate(process_folders(Path(sys.argv[1]))[:8]):
    bars += index_process(folder, Path(sys.argv[2]) / f"{number}.rows")
print(json.dumps({
    "bars": bars, "wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu,
    "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
}))
"""
_TILES = """
import json, random, resource, sys, time
from pathlib import Path
import numpy as np
from ncclscope.web.routes import Routes
from ncclscope.web.session import Timeline
timeline = Timeline(Path(sys.argv[1]))
timeline.make()
routes, scene = Routes(timeline), timeline.scene
span, draw = scene.last_ns - scene.first_ns, random.Random(1)
times, widest = [], (span // 1200).bit_length()
for _ in range(400):
    zoom = draw.randrange(8, widest + 1)
    place = draw.randrange(0, span // (512 << zoom) + 1)
    first = draw.randrange(0, max(len(scene.rows) - 60, 1))
    rows = f"{first}-{min(first + 59, len(scene.rows) - 1)}"
    began = time.process_time()
    routes("api/tile", {"z": str(zoom), "i": str(place), "rows": rows})
    times.append(1e3 * (time.process_time() - began))
p50, p95, most = np.percentile(times, (50, 95, 100)).tolist()
print(json.dumps({
    "p50_ms": p50, "p95_ms": p95, "most_ms": most, "rows": len(scene.rows),
    "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
}))
timeline.stop()
"""


def measure(script: str, *arguments: object) -> dict[str, float]:
    """One measurement in a process of its own."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise SystemExit(ran.stderr)
    return dict(json.loads(ran.stdout.strip().splitlines()[-1]))


def measurements(capture: Path, directory: Path) -> list[list[object]]:
    """All rows of the table, for one capture."""
    coarse = measure(_COARSE, capture)
    index = measure(_INDEX, capture, directory)
    tiles = measure(_TILES, capture)
    each = index["bars"] / index["cpu_s"]
    spent = f"{coarse['cpu_s']:.2f} s of CPU, {coarse['wall_s']:.1f} s by the clock"
    tile = f"{tiles['p50_ms']:.1f} · {tiles['p95_ms']:.1f} · {tiles['most_ms']:.1f} ms"
    rate = f"{each / 1e6:.1f} M events/s and core, {each * CORES / 1e6:.1f} M on {CORES}"
    found: list[tuple[str, str, str, bool | None]] = [
        ("first picture", spent, f"≤ {COARSE_BAR_S:.0f} s", coarse["cpu_s"] <= COARSE_BAR_S),
        ("index", rate, f"≥ {INDEX_BAR / 1e6:.0f} M", each * CORES >= INDEX_BAR),
        ("index, peak of a worker", f"{index['peak_gb']:.2f} GB", "", None),
        (
            "tile of 60 rows, CPU: p50 · p95 · largest",
            tile,
            f"p95 ≤ {TILE_BAR_MS:.0f} ms",
            tiles["p95_ms"] <= TILE_BAR_MS,
        ),
        ("server, peak, mapped files included", f"{tiles['peak_gb']:.1f} GB", "", None),
    ]
    return [
        [what, value, bar, "" if holds is None else verdict(holds)]
        for what, value, bar, holds in found
    ]


def main() -> None:
    """Makes the capture, measures, and publishes."""
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as directory:
        capture = Path(directory) / "capture"
        synthetic(capture, SyntheticSpec(processes=RANKS, operations=OPERATIONS))
        rows = measurements(capture, Path(directory))
    note = (
        f"A simulated capture of {RANKS} ranks with {OPERATIONS:,} operations each, 10^8 events, "
        "7 GB. Tiles at random zooms and places, 60 neighbouring rows each."
    )
    publish("timeline-speed", f"{table(['what', 'measured', 'bar', ''], rows)}\n\n{note}")
