"""The ways that control may take through a kernel, and what is known of predicates on them."""
