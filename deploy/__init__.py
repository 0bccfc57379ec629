"""Turns schedules into running instances, and requests into answers.

Pure decisions (what should run, what has to change) lie below; adapters that act on processes
and the network lie above them. gRPC is known here and nowhere else.
"""
