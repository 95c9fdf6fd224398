"""What operators do with a stack, on an AWS account or on the embedded AWS."""
