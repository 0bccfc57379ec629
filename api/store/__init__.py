"""The database of the service: queries, plans, schedules, measurements and events.

Values go in and come out by copy. SQLAlchemy and the database schema stay inside this package.
"""
