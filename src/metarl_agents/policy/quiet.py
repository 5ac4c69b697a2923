"""Keep off the terminal what other libraries write to their own users: progress bars, deprecations between them."""

from __future__ import annotations

import warnings
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


@contextmanager
def quiet_peft() -> Iterator[None]:
    """Ignore, inside the block, that peft 0.21 reads a name which transformers 5.24 has deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, message=".*is_gradient_checkpointing.*")
        yield
