"""Who may talk to the page's server, and with how many bytes."""

import secrets
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ("127.0.0.1", "localhost")
UPLOAD = "/api/photos"
MAX_UPLOAD, MAX_BODY = 32 * 2**20, 16 * 2**10  # bytes of a photo, and of any other request
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Refused(Exception):  # noqa: N818 - an answer, not an error of ours
    """A request that goes no further: a status and a sentence."""

    def __init__(self, status: HTTPStatus, sentence: str):
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class Guard:
    """Lets through requests that know the token and come from this page, and limits their bodies.

    The token is in the address that the user opens, then in a cookie, or in a header, "Authorization: Bearer TOKEN".
    Host is checked against other sites whose name leads to this machine (DNS rebinding), Origin against their scripts.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int):
        self.app, self.token = app, token
        self.hosts = {f"{host}:{port}" for host in HOSTS} | ({*HOSTS} if port == 80 else set())
        self.cookie = f"scfs-explore-{port}"  # browsers send cookies to every port of a host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_address = self._is_address(scope)

        async def send_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if has_address:
                    headers.append("Set-Cookie", f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict")
            await send(message)

        try:
            self._check(scope, has_address)
        except Refused as refused:
            answer = JSONResponse({"detail": refused.sentence}, refused.status, headers={"Connection": "close"})
            await answer(scope, receive, send_headers)
            return
        await self.app(scope, _limited(receive, _max_body(scope)), send_headers)

    def _check(self, scope: Scope, has_address: bool) -> None:
        headers = Headers(scope=scope)
        if len(hosts := headers.getlist("host")) != 1 or hosts[0].lower() not in self.hosts:
            raise Refused(HTTPStatus.FORBIDDEN, "This page is only served under the address that scfs explore printed.")
        if any(origin.lower().removeprefix("http://") not in self.hosts for origin in headers.getlist("origin")):
            raise Refused(HTTPStatus.FORBIDDEN, "Requests of other pages are refused.")
        if not has_address and not self._knows_token(headers):
            raise Refused(HTTPStatus.FORBIDDEN, "Open the address that scfs explore printed, with its token.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > _max_body(scope):
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(_max_body(scope)))

    def _is_address(self, scope: Scope) -> bool:
        """Whether this is the address that was printed."""
        given = QueryParams(scope.get("query_string", b"")).get("token", "")
        return bool(scope["path"] == "/" and scope["method"] == "GET" and self._is_token(given))

    def _knows_token(self, headers: Headers) -> bool:
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        cookie = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        return self._is_token(bearer) or self._is_token(cookie)

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode("utf-8", "replace"), self.token.encode())


def _max_body(scope: Scope) -> int:
    return MAX_UPLOAD if scope["path"] == UPLOAD else MAX_BODY


def _limited(receive: Receive, max_bytes: int) -> Receive:
    """The same messages, up to so many bytes: a request need not state its length, or may lie about it."""
    num_bytes = 0

    async def limited() -> Message:
        nonlocal num_bytes
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > max_bytes:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(max_bytes), {"Connection": "close"})
        return message

    return limited


def _too_large(max_bytes: int) -> str:
    limit = f"{max_bytes // 2**20} MB" if max_bytes >= 2**20 else f"{max_bytes // 2**10} kB"
    return f"This is larger than {limit}; send less."
