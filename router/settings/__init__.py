"""Every setting, in one place.

Order of precedence, highest first: environment `POINTSMAN_<SECTION>__<KEY>`, the file `pointsman.toml` (in the working
directory, or named by `POINTSMAN_CONFIG`), the defaults below. `pointsman config` prints what is in force, secrets
masked; `pointsman config --example` prints a commented file. A bad value stops the start with the key, the problem and
what is allowed.
"""

from router.settings.answering import AgenticSettings, RetrievalSettings, RoutingSettings, SandboxSettings
from router.settings.load import BadSettings, Settings, config_path, load_settings
from router.settings.models import EmbeddingSettings, LlmSettings, UpstreamSettings
from router.settings.sections import Section
from router.settings.server import (
    AuthSettings,
    CertificateSettings,
    HttpSettings,
    LimitSettings,
    ServerSettings,
    TenantLimitSettings,
    TlsSettings,
)
from router.settings.shown import example_toml, masked
from router.settings.storage import DatabaseSettings, JournalSettings, TableSettings
from router.settings.watching import CanarySettings, LogSettings, TraceSettings

__all__ = [
    "AgenticSettings",
    "AuthSettings",
    "BadSettings",
    "CanarySettings",
    "CertificateSettings",
    "DatabaseSettings",
    "EmbeddingSettings",
    "HttpSettings",
    "JournalSettings",
    "LimitSettings",
    "LlmSettings",
    "LogSettings",
    "RetrievalSettings",
    "RoutingSettings",
    "SandboxSettings",
    "Section",
    "ServerSettings",
    "Settings",
    "TableSettings",
    "TenantLimitSettings",
    "TlsSettings",
    "TraceSettings",
    "UpstreamSettings",
    "config_path",
    "example_toml",
    "load_settings",
    "masked",
]
