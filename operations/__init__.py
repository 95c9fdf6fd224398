"""What operators do with the stack of an AWS account or of the embedded AWS."""
