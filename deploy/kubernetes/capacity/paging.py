"""Lists in pages: of thousands of pods, no answer is larger than a page.

All pages are of one state of the collection. The server keeps a state for some minutes; when it
has forgotten it on the way, the list is fetched anew and at once, as a further try page by page
might be too slow again (so does Kubernetes' own client for Go).
"""

from __future__ import annotations

from collections.abc import Callable

from circinus.deploy.kubernetes.api import Expired, Object

PAGE = 500
"""Objects of a page: what kubectl asks for, too."""


def in_pages(
    listed: Callable[..., Object], path: str, page: int = PAGE, /, **query: str
) -> Object:
    """Return the whole list of a collection, with the version to watch from; raises as `listed`.

    `listed` is that of `Cluster`, or one that tries again.
    """
    found = listed(path, **query, limit=str(page))
    items = list(found["items"])
    try:
        while rest := found["metadata"].get("continue"):
            found = listed(path, **query, limit=str(page), **{"continue": rest})
            items += found["items"]
    except Expired:
        return listed(path, **query)
    return {**found, "items": items}
