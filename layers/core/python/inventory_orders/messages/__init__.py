"""From the text of a message or command to a change, or to the reason why it can never be one."""
