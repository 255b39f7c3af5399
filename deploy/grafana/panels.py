"""What the dashboard shows: rows that a person on call reads from the top.

A test checks every metric and label that a panel asks for against the gateway's registry.
"""

from __future__ import annotations

from typing import Final

from deploy.grafana.answers_rows import ANSWERS, LOOP, MODEL, RETRIEVAL, ROUTING
from deploy.grafana.service_rows import SATURATION, SLOW, TENANTS, UP

ROWS: Final = (UP, SLOW, ROUTING, ANSWERS, LOOP, RETRIEVAL, MODEL, TENANTS, SATURATION)
