"""The page's server: its files, images by number, photos of users, and answers of the feature search."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException as StarletteHTTPException

from scfs.data.decode import Unreadable
from scfs.visualize.explore.guard import MAX_UPLOAD, UPLOAD, Guard
from scfs.visualize.explore.state.gallery import FractionBox, UnknownPhoto
from scfs.visualize.explore.state.session import Session
from scfs.visualize.explore.turns import Turns

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MAX_UPLOADS, UPLOAD_SECONDS = 4, 60  # read at a time, and for how long at most
PhotoName = Annotated[str, Field(max_length=20)]
Coordinate = Annotated[float, Field(ge=0, le=1)]


class SearchRequest(BaseModel):
    """A box of an image to search for."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    run: int
    photo: PhotoName
    box: Annotated[list[Coordinate], Field(min_length=4, max_length=4)]  # left, top, right, bottom
    neighbours: bool = True
    by: int | None = None  # the run that decides which images are neighbours; None: the same

    @model_validator(mode="after")
    def _has_area(self) -> "SearchRequest":
        left, top, right, bottom = self.box
        if left >= right or top >= bottom:
            raise ValueError("the box must have its left below its right and its top below its bottom")
        return self


class Endpoints:
    """What the server answers. Networks have a thread, and reading and encoding images has one."""

    def __init__(self, session: Session):
        self.session = session
        self.networks, self.images = Turns("networks"), Turns("images")
        self.uploads = asyncio.Semaphore(MAX_UPLOADS)
        self.page = {file.name: file.read_bytes() for file in (files(__package__) / "page").iterdir() if file.is_file()}

    async def index(self) -> Response:
        """The page."""
        return await self.file("index.html")

    async def file(self, name: str) -> Response:
        """A file of the page, from memory."""
        if name not in self.page:
            raise HTTPException(404, "The page has no such file.")
        return Response(self.page[name], media_type=TYPES["." + name.rpartition(".")[2]])

    async def describe(self) -> JSONResponse:
        """Runs, number of images, limits, and the image to start with."""
        return JSONResponse(self.session.describe() | {"max_upload": MAX_UPLOAD})

    async def titles(
        self,
        request: Request,
        first: Annotated[int, Query(ge=0, lt=2**40)] = 0,
        count: Annotated[int, Query(ge=1, le=100)] = 48,
    ) -> JSONResponse:
        """Names and titles of consecutive images."""
        return JSONResponse(await self.images.take(request, lambda: self.session.titles(first, count)))

    async def about(self, request: Request, photo: PhotoName) -> JSONResponse:
        """Title and size of an image, and the box to start with."""
        return JSONResponse(await self.images.take(request, lambda: self.session.gallery.describe(photo)))

    async def pixels(self, request: Request, photo: PhotoName, size: Literal["thumbnail", "small", "full"]) -> Response:
        """An image as JPEG."""
        data = await self.images.take(request, lambda: self.session.gallery.encoded(photo, size))
        return Response(data, media_type="image/jpeg")

    async def add_photo(self, request: Request) -> JSONResponse:
        """Keep the photo in the body of a request; answers as `about`."""
        gallery = self.session.gallery
        async with self.uploads:
            try:
                data = await asyncio.wait_for(request.body(), UPLOAD_SECONDS)
            except TimeoutError:
                raise HTTPException(408, f"The photo did not arrive within {UPLOAD_SECONDS} seconds.") from None
            about = await self.images.take(request, lambda: gallery.describe(gallery.add(data)))
        return JSONResponse(about, 201)

    async def search(self, request: Request, asked: SearchRequest) -> JSONResponse:
        """Attention of one run for a box of an image, in the image and in its neighbours."""
        by = asked.run if asked.by is None else asked.by
        for run in (asked.run, by):
            if not 0 <= run < len(self.session.runs):
                raise HTTPException(404, f"There is no run {run}; they are numbered from 0.")
        left, top, right, bottom = asked.box
        box: FractionBox = (left, top, right, bottom)
        found = await self.networks.take(
            request, lambda: self.session.search(asked.run, asked.photo, box, neighbours=asked.neighbours, by=by)
        )
        return JSONResponse(found)

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """At the end of the server, its threads end."""
        yield
        self.networks.close()
        self.images.close()


def create_app(session: Session, *, token: str, port: int) -> Guard:
    """The server, for the clients that know the token."""
    endpoints = Endpoints(session)
    app = FastAPI(lifespan=endpoints.lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    routes: dict[str, Callable[..., Any]] = {
        "GET /": endpoints.index,
        "GET /page/{name}": endpoints.file,
        "GET /api/session": endpoints.describe,
        "GET /api/images": endpoints.titles,
        "GET /api/images/{photo}": endpoints.about,
        "GET /api/images/{photo}/{size}": endpoints.pixels,
        f"POST {UPLOAD}": endpoints.add_photo,
        "POST /api/search": endpoints.search,
    }
    for route, endpoint in routes.items():
        method, path = route.split()
        app.add_api_route(path, endpoint, methods=[method], response_model=None)
    app.add_exception_handler(RequestValidationError, _on_malformed)
    app.add_exception_handler(StarletteHTTPException, _on_refusal)
    app.add_exception_handler(UnknownPhoto, lambda _, error: _sentence(404, str(error)))
    app.add_exception_handler(Unreadable, lambda _, error: _sentence(422, f"{error}."))
    app.add_exception_handler(Exception, lambda *_: _sentence(500, "The server failed; its terminal says why."))
    return Guard(app, token=token, port=port)


def _sentence(status: int, text: str) -> JSONResponse:
    return JSONResponse({"detail": text}, status)


def _on_malformed(_: Request, error: Exception) -> JSONResponse:
    """The first problem of a request. Values are not repeated: they may be anything."""
    assert isinstance(error, RequestValidationError)
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"] if part not in ("body", "query", "path"))
    return _sentence(422, f"Malformed request{f' at {where[:40]}' if where else ''}: {problem['msg']}.")


def _on_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    answer = _sentence(error.status_code, f"{str(error.detail).rstrip('.')}.")  # the framework's have no full stop
    answer.headers.update(error.headers or {})
    return answer
