"""The voice: the only room that knows tokenizers, model classes and sharding.

Read first: `policy.py` (encode, generate), then `scoring.py` (log-probs of what was sampled), `loading.py`.
"""
