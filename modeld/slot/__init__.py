"""The one place for a resident model: a pure machine, and the driver that carries out what it decides."""
