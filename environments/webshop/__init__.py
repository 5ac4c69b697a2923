"""WebShop: find and buy the product an instruction asks for; what was tried and did not fit is worth remembering.

Read first: `shop.py` (pages and clicks), `scoring.py` (what a purchase is worth), then `env.py` (text in and out).
The shop's products come from `files.py` (the user's own data) or `generate.py`; both go through `catalogue.py`.

Source: Yao et al., "WebShop: towards scalable real-world web interaction with grounded language agents", 2022.
"""

from metarl_agents.environments.webshop.env import WebShop

__all__ = ["WebShop"]
