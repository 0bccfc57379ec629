"""Turns schedules into running instances, and requests into answers; gRPC is known only here."""
