"""How studies are told: tables, charts and pages; imports nothing of any study."""
