"""The forge: turning credit into weights. Read first: `trainer.py`, then `loss.py` and `batch.py`."""
