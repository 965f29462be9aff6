"""What keeps the traced program, other users of the machine, and this package safe from each other."""
