"""The checks of ``doctor``: each is a function from facts to findings. ``all`` lists them."""
