"""What the service remembers: queries, plans, schedules, measurements and requests.

Values go in and come out by copy; SQLAlchemy and the database schema stay inside this package.
"""
