"""The unit, integration and end-to-end tests, the exploration and the soak."""
