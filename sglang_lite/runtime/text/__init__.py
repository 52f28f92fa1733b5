"""Tokenizer, detokenizer and chat templates."""
