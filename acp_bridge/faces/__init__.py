"""A face speaks an editor's protocol and shows what happens; nothing else."""
