"""Running jobs as metrics: what Prometheus asks for, read from captures that are being written."""
