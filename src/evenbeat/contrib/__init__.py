"""Integrations with other libraries, each an extra of its own and built on the public hooks."""
