"""The composition root: settings in, a working gateway out. Nothing else constructs parts.

async with open_application(settings) as application:     # database, embedder, models, gateway
...
async with open_server_process(settings) as server:       # the same behind gRPC and metrics, lock held
...
async with open_local_server(settings) as port:           # the same behind a free port, for one client command
...
"""

from __future__ import annotations
