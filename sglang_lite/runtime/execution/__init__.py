"""Plans in, tokens out: forward batches, the model runner, sampling."""
