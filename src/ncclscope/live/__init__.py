"""Running jobs. In: captures that are being written. Out: metrics, a terminal screen."""
