"""Methods of 3 x 3 convolution, each a `.sass` and a class, which enters itself in ``kernels_sass.conv.method.METHODS``
when it is imported: as all of them are here."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    if _module.name != "common":  # which the sources include
        importlib.import_module(f"{__name__}.{_module.name}")
