"""One file for each method; the file tree reads like the protocol."""
