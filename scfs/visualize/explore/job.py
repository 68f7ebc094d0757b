import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from scfs.backbones import Loaded
from scfs.config import Config
from scfs.data.loader import num_workers
from scfs.data.sources import Source, open_train
from scfs.data.unreadable import show_left_out
from scfs.distributed import choose_device
from scfs.errors import UserError
from scfs.evaluate.own_data import own_data, show_own
from scfs.evaluate.target import load_evaluated, show_report
from scfs.recipe import check, read_toml
from scfs.runs.layout import SETTINGS
from scfs.runs.results import run_of
from scfs.visualize.attention import Searcher, usable_side
from scfs.visualize.explore.settings import Explore
from scfs.visualize.explore.state.gallery import CENTRE, Gallery
from scfs.visualize.explore.state.searched_run import SearchedRun
from scfs.visualize.explore.state.session import Session
from scfs.visualize.features import Sample, sample_features

PACKAGES = ("fastapi", "uvicorn")  # of the extra "explore"
LOCAL_FRACTION = 96 / 224  # the paper's local views, as a fraction of its global ones
SCALES = 3  # side of searched images, in sides of queries
ADDRESS = "127.0.0.1"


def explore(targets: Sequence[str], settings: Explore, console: Console) -> None:
    """Serve a page that shows what the feature search looks at, until Ctrl-C: the `scfs explore` command."""
    check_packages()
    with reserve_port(settings.port) as listener:  # first: what takes minutes should not end with a port in use
        serve(open_session(targets, settings, console), listener, console)


def check_packages() -> None:
    """Raise a `UserError` for packages that are not installed."""
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        raise UserError(f"scfs explore needs {' and '.join(missing)}: pip install 'scfs[explore]'.")


def open_session(targets: Sequence[str], settings: Explore, console: Console) -> Session:
    """Load the runs and open the images; the features of some images are computed, to find neighbours among."""
    device = choose_device(settings.device)
    every_loaded = [load_evaluated(target, settings) for target in targets]
    sides = [choose_sides(*pair, settings) for pair in zip(targets, every_loaded, strict=True)]
    source = _open_images(targets[0], settings, console)
    gallery, runs = Gallery(source), []
    for name, loaded, (side, query_side) in zip(short_names(targets), every_loaded, sides, strict=True):
        show_report(loaded, console)
        feature_side = loaded.evaluated_size("auto")
        searcher = Searcher(loaded.backbone.to(device), side=side, query_side=query_side)
        sample = _sample(searcher, source, feature_side, settings, console)
        cache_bytes = settings.cache_megabytes * 2**20 // len(targets)
        runs.append(SearchedRun(name, searcher, sample, gallery, feature_side=feature_side, cache_bytes=cache_bytes))
    show_left_out(runs[0].sample.unreadable, console)
    session = Session(runs, gallery, num_neighbours=settings.neighbours)
    for number in range(len(runs)):  # what the page shows first
        session.search(number, session.first_photo, CENTRE, neighbours=True, by=number)
    return session


def choose_sides(target: str, loaded: Loaded, settings: Explore) -> tuple[int, int]:
    """The sides of searched images and of queries: as set, or by what the network was trained on."""
    trained = loaded.evaluated_size("auto")
    query_side = _side(loaded, settings.query_size, auto=_trained_query(target, trained))
    return _side(loaded, settings.size, auto=max(SCALES * query_side, trained)), query_side


def _side(loaded: Loaded, setting: int | str, *, auto: int) -> int:
    """A side as set; or what is best, or as in training if the network cannot take that."""
    if setting != "auto":
        return usable_side(loaded.backbone, int(setting))
    try:
        return usable_side(loaded.backbone, auto)
    except UserError:
        return loaded.evaluated_size("auto")


def _trained_query(target: str, trained: int) -> int:
    """The side of the views that were searched for in training; without a run, in the paper's proportion."""
    run = run_of(target)
    values = {} if run is None else read_toml(run / SETTINGS)
    if "views" not in values:
        return round(LOCAL_FRACTION * trained)
    config = check(Config, values)
    return config.views.local_size if config.num_local_views else config.views.global_size


def _open_images(target: str, settings: Explore, console: Console) -> Source:
    if settings.data:
        return open_train(settings.data, classes=settings.classes)
    data, classes = own_data(target)
    if not data:
        raise UserError(f"{target} is not a run with its own images; give images with --data.")
    try:
        source = open_train(data, classes=settings.classes or classes)
    except UserError as error:
        reason = str(error).partition(";")[0].rstrip(".")
        raise UserError(f"{reason}, where the images of {target} were; give images with --data.") from None
    show_own(data, console)
    return source


def _sample(searcher: Searcher, source: Source, side: int, settings: Explore, console: Console) -> Sample:
    """Features of some images, with a progress bar."""
    device = next(searcher.backbone.parameters()).device
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("features", total=min(settings.sample, len(source)))
        return sample_features(
            searcher.backbone,
            source,
            size=side,
            limit=settings.sample,
            workers=num_workers(settings.workers, device),
            on_batch=lambda images: progress.advance(task, images),
        )


def short_names(targets: Sequence[str]) -> list[str]:
    """The last parts of paths, as many as tell them apart; equal targets are numbered."""
    paths = [target if target.startswith("random:") else str(Path(target).resolve()) for target in targets]
    parts = [path.split("/") for path in paths]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-count:]) for each in parts]
        if len({*names}) == len({*paths}):
            break
    return [f"{name} ({i + 1})" if names.count(name) > 1 else name for i, name in enumerate(names)]


def reserve_port(port: int) -> socket.socket:
    """A socket that only users of this machine can reach, and nobody yet."""
    # With the protocol named, asyncio sends at once (TCP_NODELAY); otherwise answers wait 40 ms for an acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
    except OSError as error:
        listener.close()
        raise UserError(
            f"Cannot listen on port {port} ({error.strerror}); choose another --port, or 0 for any."
        ) from None
    return listener


def serve(session: Session, listener: socket.socket, console: Console) -> None:
    """Print the address, and serve until Ctrl-C."""
    import uvicorn

    from scfs.visualize.explore.server import create_app

    port, token = listener.getsockname()[1], secrets.token_urlsafe(24)
    app = create_app(session, token=token, port=port)
    address = f"http://{ADDRESS}:{port}/?token={token}"
    listener.listen()  # so that who opens the address at once only waits
    console.print(f"{len(session.gallery.source)} images; open this address, and end with Ctrl-C:", highlight=False)
    console.print(address, markup=False, highlight=False, soft_wrap=True)
    config = uvicorn.Config(app, access_log=False, log_level="warning", timeout_graceful_shutdown=2)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])
