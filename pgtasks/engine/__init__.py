"""The worker: one module per moving part, wired together in ``worker``."""
