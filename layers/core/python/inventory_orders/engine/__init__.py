"""The one engine for every change of stock: it reads, plans, commits, and plans again where a rival was faster."""
