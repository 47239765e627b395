"""The HTTP service: /api/v1, sign-in, health and metrics."""
