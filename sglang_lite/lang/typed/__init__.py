"""Values of Python types: what a type allows the model to write, and the value that its text means."""
