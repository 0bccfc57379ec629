"""The data at the edge of the service: the query file, bodies and answers, in pydantic.

Input is strict (no unknown field, no number from text, no NaN); output may grow.
May import `api.settings` and below.
"""
