"""Models: stacks of untouched PyG convs; one file per model, each with a `Config` and `conv(...)`."""
