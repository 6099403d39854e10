"""What people and programs get to see: terminal, JSON, CSV, HTML. Numbers come from analysis."""
