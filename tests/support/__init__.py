"""What tests share: helpers, and no tests."""
