"""The settings: what there are, what they may be, and what they are in this process."""
