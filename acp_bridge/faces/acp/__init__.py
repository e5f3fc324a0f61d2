"""The ACP v1 face: the editor's protocol on one side, the core on the other."""
