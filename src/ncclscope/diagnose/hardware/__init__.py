"""What samples of GPUs, network and hosts show."""
