"""Searches for a faster kernel by trial, on a GPU or many: ``turingas tune`` and ``turingas.tune_triton``.

launches.py reads how the kernel is launched; judge.py makes and judges a candidate, in a worker; search.py chooses
which go on; model.py stands in for the clock where there is no GPU. What may be changed in a kernel is
turingas/scheduler/moves; where it runs, loader/workers.
"""
