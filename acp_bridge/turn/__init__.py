"""One turn of any face: the driver, what it is given, and the rules that hold whoever shows it."""
