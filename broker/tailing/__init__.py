"""Following the logs: `tail` reads one, `heart` checks it, `resync` repairs what it may have hidden."""
