"""Real workers and servers, faults that strike them, and a checker of what happened."""
