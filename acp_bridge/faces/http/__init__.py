"""The HTTP face: programs that speak the OpenAI protocol, on a port or socket that the user opened."""
