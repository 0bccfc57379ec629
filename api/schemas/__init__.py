"""What crosses the edge of the service: the query file, bodies and answers, in pydantic.

What comes in is strict (no unknown field, no number from text, no NaN); what goes out may grow.
May import `api.settings` and below.
"""
