"""All routes of the page."""

from typing import Final

from runwatch_server.page import (
    alerts_api,
    assets_api,
    compare_api,
    demo_api,
    interface_api,
    jobs_api,
    kept_api,
    login_api,
    rules_api,
    run_actions_api,
    run_api,
    runbooks_api,
    runs_api,
    settings_api,
    silences_api,
    welcome_api,
)

ROUTERS: Final = (
    assets_api.router,
    login_api.router,
    runs_api.router,
    run_api.router,
    jobs_api.router,
    compare_api.router,
    alerts_api.router,
    silences_api.router,
    run_actions_api.router,
    kept_api.router,
    rules_api.router,
    runbooks_api.router,
    welcome_api.router,
    demo_api.router,
    settings_api.router,
    interface_api.router,
)
