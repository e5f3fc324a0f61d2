"""The OpenAI protocol as values: what comes in, what goes out, and errors. Pure."""
