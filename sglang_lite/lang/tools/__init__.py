"""Tools of a program: what may be called, the gens that call, and what they give."""
