"""Fetched record batches to Arrow: layout, codecs, transactions, the compiled record loop and the columns it fills."""
