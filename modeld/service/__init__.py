"""modeld as a service of the user's session: optional, without privilege, one file for each platform's manager."""
