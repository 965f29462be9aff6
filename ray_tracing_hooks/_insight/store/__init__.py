"""Keeps runs as Parquet files that other programs read, one folder for each run, and computes tables from them."""
