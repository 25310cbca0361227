"""One page about a synthetic table: facts (aggregates), plots, HTML. See `page`."""
