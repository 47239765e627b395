"""What a running Evenbeat lets the world see of itself."""
