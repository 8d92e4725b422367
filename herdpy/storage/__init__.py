"""Rows at rest: pages, segments, table pages, the manifest, and what a checkpoint writes."""
