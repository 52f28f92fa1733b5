"""What is measured: one file a workload."""
