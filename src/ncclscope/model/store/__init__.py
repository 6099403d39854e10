"""Models on disk: the saved model of a capture, and datasets of Parquet files."""
