"""Scripts that make files of this repository: wheels, pages, dashboards."""
