"""`python -m benchmarks W4 --peers llama.cpp,hf --rounds 3 --out DIR`."""

from benchmarks.cli import main

raise SystemExit(main())
