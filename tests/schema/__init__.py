"""The schema: how it is made, upgraded and taken down, and what it refuses."""
