"""The tree executor: ops of programs in, requests to the scheduler out, events back."""
