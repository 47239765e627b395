"""The HTTP service: /api/v1, /api/admin, sign-in, health and metrics."""
