"""The quality report: facts (aggregates), plots and one HTML page. See `page`."""
