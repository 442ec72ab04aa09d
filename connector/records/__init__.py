"""Fetched record batches to Arrow: layout, codecs, the compiled record loop, and the columns it fills."""
