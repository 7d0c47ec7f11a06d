"""The house style, held by tests of our own; CONTRIBUTING.md says it in words."""
