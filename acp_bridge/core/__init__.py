"""Everything behind a face: open conversations, what was picked for them, their prompts, and who shows it."""
