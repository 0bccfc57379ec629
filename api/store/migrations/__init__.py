"""Alembic's scripts: `env.py` runs them, `versions` holds them."""
