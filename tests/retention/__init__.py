"""What goes when it is old, and what stays."""
