"""The use cases of the service. They know neither HTTP nor SQL."""
