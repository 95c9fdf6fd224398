"""The one engine for all stock changes: it reads, plans, commits, and plans again if a concurrent writer was faster."""
