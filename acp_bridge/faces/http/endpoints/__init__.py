"""One file for each endpoint of the HTTP face."""
