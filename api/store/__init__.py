"""The service's persistent state: queries, plans, schedules, measurements and requests.

Arguments and results are copies; SQLAlchemy and the database schema stay inside this package.
"""
