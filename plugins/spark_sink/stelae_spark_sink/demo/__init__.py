"""``stelae spark demo``: a stream of CSV files into a table while servers are killed, and a comparison of every row."""
