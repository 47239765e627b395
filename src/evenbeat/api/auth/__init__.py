"""Who may use the service: tokens, how they are signed, and signing in."""
