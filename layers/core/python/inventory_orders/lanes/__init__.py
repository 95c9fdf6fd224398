"""Stock that is set aside in lanes: how it is sold, recalled, and returned when it is idle."""
