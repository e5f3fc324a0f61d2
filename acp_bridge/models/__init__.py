"""What the bridge knows of models: the library as it may be shown, what a pick means, what fits."""
