"""A small Celery project (`before.py`), and the same on Evenbeat (`after.py`)."""
