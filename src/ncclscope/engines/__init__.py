"""Clusters. In: process folders, an address. Out: engines that make models."""
