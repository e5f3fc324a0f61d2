"""Real ACP clients and the official schema, for driving the bridge and judging what it sends."""
