"""How tasks reach beyond Python: URLs under an address policy, commands in process groups."""
