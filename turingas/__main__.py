"""`python -m turingas` is the turingas command."""

from turingas.cli import main

main()
