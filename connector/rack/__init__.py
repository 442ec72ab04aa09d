"""Which rack this executor is in: see `connector.rack.resolve`."""
