"""Reports of studies: tables, charts and pages; imports nothing of any study."""
