"""What connections survive, what ends at a deadline, and what a worker does meanwhile."""
