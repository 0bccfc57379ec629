"""The pages that a browser shows, a file each; imports `control` and below, as routes do."""
