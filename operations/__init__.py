"""What operators run: on the stack of an AWS account, or on the embedded AWS."""
