"""Clusters that decode. In: process folders, an address. Out: decoders for the model."""
