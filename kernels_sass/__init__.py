"""Kernels in SASS, each in a folder of its own with what the host needs to launch it."""

from turingas.packages import check

check("loader")
