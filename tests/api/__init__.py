"""The HTTP service, tested over HTTP. A package, because its files share names with others."""
