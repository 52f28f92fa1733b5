"""The HTTP server: native routes, programs and OpenAI's API over one engine."""
