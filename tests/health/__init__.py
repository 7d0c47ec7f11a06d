"""Health: who is alive and ready, who says so, and over what."""
