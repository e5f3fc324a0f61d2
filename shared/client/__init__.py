"""The one way to modeld, for bridges and commands: where it is, how it is dialled and greeted, what may go wrong."""
