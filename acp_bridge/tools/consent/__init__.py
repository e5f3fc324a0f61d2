"""What a person is asked before a tool acts, what a grant covers, and what asks each time."""
