"""What each kind of role may do."""
