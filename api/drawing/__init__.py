"""Pictures of views: pure functions to SVG text; may import `formats` and below.

They stand alone, in a notebook as in a page: colours are attributes, which the classes of a page
override. Nothing in them is a script or a style.
"""
