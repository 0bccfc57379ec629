"""Planning and scheduling together, as queries arrive and leave: goodput and cost over time."""
