"""Pictures of what views tell: pure functions to SVG text; may import `formats` and below.

They stand alone, in a notebook as in a page: colours are attributes, which a page's own take the
place of by their classes. Nothing in them is a script or a style.
"""
