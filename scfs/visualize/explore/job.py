import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress

from rich.console import Console
from rich.progress import Progress

from scfs.data.loader import num_workers
from scfs.data.sources import Source, open_train
from scfs.data.unreadable import show_left_out
from scfs.distributed import choose_device
from scfs.errors import UserError
from scfs.evaluate.own_data import choose_data
from scfs.evaluate.target import load_evaluated, show_report
from scfs.extras import check_extra
from scfs.visualize.attention import Searcher
from scfs.visualize.explore.settings import Explore
from scfs.visualize.explore.state.gallery import CENTRE, Gallery
from scfs.visualize.explore.state.searched_run import SearchedRun
from scfs.visualize.explore.state.session import Session
from scfs.visualize.features import Sample, sample_features
from scfs.visualize.searchers import build_searcher, short_names

ADDRESS = "127.0.0.1"


def explore(targets: Sequence[str], settings: Explore, console: Console) -> None:
    """Serve a page that shows what the feature search looks at, until Ctrl-C: the `scfs explore` command."""
    check_extra("explore", "scfs explore")
    with reserve_port(settings.port) as listener:  # first: what takes minutes should not end with a port in use
        serve(open_session(targets, settings, console), listener, console)


def open_session(targets: Sequence[str], settings: Explore, console: Console) -> Session:
    """Load the runs and open the images; the features of some images are computed, to find neighbours among."""
    device = choose_device(settings.device)
    every_loaded = [load_evaluated(target, settings) for target in targets]
    searchers = [
        build_searcher(
            loaded,
            target,
            others=targets,
            layers=loaded.backbone.layers,
            size=settings.size,
            query_size=settings.query_size,
            device=device,
        )
        for target, loaded in zip(targets, every_loaded, strict=True)
    ]
    data = choose_data(targets[0], settings.data, console, classes=settings.classes)
    source = open_train(data.source, classes=data.classes, max_pixels=data.max_pixels)
    gallery, runs = Gallery(source), []
    for name, loaded, searcher in zip(short_names(targets), every_loaded, searchers, strict=True):
        show_report(loaded, console)
        feature_side = loaded.evaluated_size("auto")
        sample = _sample(searcher, source, feature_side, settings, console)
        cache_bytes = settings.cache_megabytes * 2**20 // len(targets)
        runs.append(SearchedRun(name, searcher, sample, gallery, feature_side=feature_side, cache_bytes=cache_bytes))
    show_left_out(runs[0].sample.unreadable, console)
    session = Session(runs, gallery, num_neighbours=settings.neighbours)
    for number in range(len(runs)):  # what the page shows first
        session.search(number, session.first_photo, CENTRE, neighbours=True, by=number)
    return session


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
    console.print(f"{len(session.gallery.source)} images; open this address, and end with Ctrl-C:")
    console.print(address)
    config = uvicorn.Config(app, access_log=False, log_level="warning", timeout_graceful_shutdown=2)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])
