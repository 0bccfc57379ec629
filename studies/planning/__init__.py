"""How planning compares, with its competitors; imports what the product does, and `report`."""
