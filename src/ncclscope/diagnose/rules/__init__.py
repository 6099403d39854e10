"""One module for each family of findings: thresholds, sentences and advice."""
