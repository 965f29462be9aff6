"""The programs by subject, written as users write them."""
