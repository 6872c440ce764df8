"""The workers of a Dask client: who is there, and waiting for their answers with a way out."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streamsvd.errors import OptionError, ResourceError, StreamSVDError

LOST_SECONDS = 60.0
"""How long a cluster without workers is waited for."""


NOTICE_SECONDS = 10.0
"""How long an error of a worker may be that of its death."""


Advance = Callable[[int], None]


@contextmanager
def client_of(scheduler: str | None) -> Iterator[Any]:
    """A client of a Dask scheduler, None without one."""
    if scheduler is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise OptionError('a scheduler needs another package: pip install "streamsvd[dask]"') from (
            error
        )
    try:
        client = Client(scheduler, timeout=10)
    except (OSError, ValueError) as error:
        raise ResourceError(f"no Dask scheduler answers at {scheduler}: {error}") from error
    with client:
        yield client


def check_client(client: Any) -> Any:
    """The client, if it is one that can be used."""
    if not (hasattr(client, "submit") and hasattr(client, "scheduler_info")):
        raise OptionError(
            f"client must be a distributed.Client; got {type(client).__name__}; see "
            'pip install "streamsvd[dask]"'
        )
    if client.asynchronous:
        raise OptionError("client is asynchronous; give one made with asynchronous=False")
    return client


def workers_of(client: Any) -> dict[str, Any]:
    """Address and description of each worker that is there; refuses a client that was closed."""
    if client.status in ("closing", "closed"):
        raise ResourceError(
            f"the client is {client.status}: keep it open until the fit has ended; run again with "
            "an open one (with resume=True if there is a workspace)"
        )
    return dict(client.scheduler_info(n_workers=-1).get("workers", {}))


def n_threads(client: Any) -> int:
    """Threads of all workers."""
    return sum(worker["nthreads"] for worker in workers_of(client).values())


def wait_for_workers(client: Any) -> dict[str, Any]:
    """`workers_of` as soon as there are some; an error after `LOST_SECONDS` without."""
    began = time.monotonic()
    while not (there := workers_of(client)):
        if time.monotonic() - began > LOST_SECONDS:
            raise ResourceError(
                "all workers of the cluster are gone; start some, and run again (with resume=True "
                "if there is a workspace)"
            )
        time.sleep(0.1)
    return there


class Lost(Exception):
    """A worker, with what it held, is gone."""


def answer_of(client: Any, future: Any, address: str | None = None) -> Any:
    """The result of a future; raises `Lost` when the worker at `address` is gone.

    Without an address any worker may give it, and a cluster without workers is an error after a
    while: every wait has a way out.
    """
    while True:
        try:
            return future.result(timeout=2)
        except TimeoutError:
            if address is None:
                wait_for_workers(client)
            elif address not in workers_of(client):
                raise Lost(address) from None
        except StreamSVDError:
            raise
        except (OSError, RuntimeError) as error:
            if address is None or not _is_gone(client, address):
                raise
            raise Lost(address) from error


def _is_gone(client: Any, address: str) -> bool:
    """Whether a worker that does not answer is no more; the scheduler may take a while to know."""
    began = time.monotonic()
    while address in workers_of(client):
        if time.monotonic() - began > NOTICE_SECONDS:
            return False
        time.sleep(0.05)
    return True


def watch(client: Any, tasks: list[tuple[Any, int]], advance: Advance) -> None:
    """Progress as tasks end; their errors come with the result.

    Empties `tasks`, futures with their numbers of samples: nothing is kept on the cluster because
    it is watched, and a future that was released before would seem to have ended.
    """
    while tasks:
        for task in [task for task in tasks if task[0].done()]:
            tasks.remove(task)
            advance(task[1])
        wait_for_workers(client)
        if tasks:
            time.sleep(0.1)
