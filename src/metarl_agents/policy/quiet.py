"""Keep transformers' progress bars off a terminal that shows our own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_progress() -> Iterator[None]:
    """Switch transformers' progress bars off inside the block, and back to what they were after it."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
