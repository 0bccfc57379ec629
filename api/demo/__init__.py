"""The demo, and requests that compare what a plan promised with what it does; needs scipy."""
