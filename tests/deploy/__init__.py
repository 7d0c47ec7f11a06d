"""What is shipped to run pgtasks elsewhere, as far as it can be checked without running it."""
