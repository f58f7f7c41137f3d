"""`/assets`: accessible without a key, since the login page needs its style too."""

import asyncio
from typing import Final

from fastapi import APIRouter, Request, Response

from runwatch_server.auth.guard import public
from runwatch_server.errors import NotFoundError
from runwatch_server.page.assets import Asset, load_assets

router: Final = APIRouter(include_in_schema=False)

_FOR_EVER: Final = "public, max-age=31536000, immutable"


@router.get("/assets/{version}/{name:path}", dependencies=[public()])
async def get_asset(version: str, name: str, request: Request) -> Response:
    """A file of the page. For another version the current file is returned, and must not be
    cached."""
    assets = load_assets()
    asset = assets.find(name)
    if asset is None:
        raise NotFoundError("asset_not_found", f"There is no file {name!r} of the page.")
    takes_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
    content, encoding = await asyncio.to_thread(_body, asset, takes_gzip)
    headers = {
        "Cache-Control": _FOR_EVER if assets.is_current(version, name) else "no-store",
        "X-Content-Type-Options": "nosniff",
        "Vary": "Accept-Encoding",
        **encoding,
    }
    return Response(content, headers=headers, media_type=asset.media_type)


def _body(asset: Asset, takes_gzip: bool) -> tuple[bytes, dict[str, str]]:
    if takes_gzip and asset.gzipped is not None:
        return asset.gzipped, {"Content-Encoding": "gzip"}
    return asset.content, {}
