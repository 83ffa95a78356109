"""The only place that knows all parts: builds a running local cluster out of them."""
