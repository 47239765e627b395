"""A small program on APScheduler 3 (`before.py`), and the same on Evenbeat (`after.py`)."""
