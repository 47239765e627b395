"""A site on loopback with everything a crawler meets: 300 articles, rules for robots, redirects, a
slow page, broken pages, a page that is no text, and a calendar without end."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ADJECTIVES = (
    "amber", "brave", "calm", "dusty", "early", "fancy", "gentle", "hasty", "icy", "jolly", "keen",
    "lazy", "misty", "noble", "odd",
)  # fmt: skip
NOUNS = (
    "anchor", "bridge", "candle", "desert", "engine", "falcon", "garden", "harbor", "island",
    "jacket", "kettle", "lantern", "meadow", "needle", "orchard", "pillar", "quarry", "river",
    "signal", "tower",
)  # fmt: skip
SLUGS = [f"{adjective}-{noun}" for adjective in ADJECTIVES for noun in NOUNS]
BRANCHES = 8
Reply = tuple[int, dict[str, str], str]
HTML = {"content-type": "text/html; charset=utf-8"}
MONTHS = re.compile(r"/calendar/(\d+)/(\d+)")

ROBOTS = "User-agent: *\nDisallow: /private/\n"
HOME_LINKS = (
    "/articles/amber-anchor", "/articles/amber-anchor#top", "/articles/amber-anchor/",
    "/articles/amber-anchor?utm_source=home", "/old/1", "/old/2", "/away", "/slow", "/broken",
    "/torn", "/missing", "/report", "/private/ledger", "/private/plans", "/calendar/2026/11",
    "mailto:us@example.com", "javascript:void(0)", "http://[broken", "/notes.txt",
)  # fmt: skip


class CrawledSite:
    """What the site has, and what was asked of it. Texts and statuses can be changed."""

    def __init__(self, elsewhere: str = "http://elsewhere.example/") -> None:
        self.elsewhere = elsewhere
        self.seen: list[tuple[str, str]] = []
        self.texts = {slug: f"All about the {slug.replace('-', ' ')}." for slug in SLUGS}
        self.statuses: dict[str, int] = {}
        self.moved: dict[str, str] = {}
        self.gate = threading.Event()
        """The slow page waits for it, as does every page in `held`."""
        self.held: set[str] = set()
        self.server = _Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]

    def reply(self, path: str) -> Reply:
        if path in self.statuses:
            return self.statuses[path], HTML, "<h1>Sorry</h1>"
        if path in self.moved:
            return 301, {"location": self.moved[path]}, ""
        return self._fixed().get(path) or self._made(path) or (404, HTML, "<h1>Not found</h1>")

    def _fixed(self) -> dict[str, Reply]:
        text = {"content-type": "text/plain"}
        return {
            "/robots.txt": (200, text, ROBOTS),
            "/": (200, HTML, page("Home of things", "Welcome.", HOME_LINKS)),
            "/notes.txt": (200, text, "Plain notes\nabout a silver compass."),
            "/report": (200, {"content-type": "application/pdf"}, "%PDF-1.4"),
            "/old/1": (301, {"location": f"/articles/{SLUGS[7]}"}, ""),
            "/old/2": (301, {"location": f"/articles/{SLUGS[14]}"}, ""),
            "/away": (302, {"location": self.elsewhere}, ""),
            "/broken": (500, HTML, "<h1>Sorry</h1>"),
            "/torn": (200, HTML | {"content-length": "1000"}, "<h1>Torn"),
        }

    def _made(self, path: str) -> Reply | None:
        if month := MONTHS.fullmatch(path):
            return 200, HTML, _month(int(month[1]), int(month[2]))
        slug = path.removeprefix("/articles/").rstrip("/")
        is_article = path.startswith("/articles/") and slug in self.texts
        return (200, HTML, self._article(slug)) if is_article else None

    def _article(self, slug: str) -> str:
        number = SLUGS.index(slug)
        below = range(number * BRANCHES + 1, min((number + 1) * BRANCHES + 1, len(SLUGS)))
        links = ["/", *(f"/articles/{SLUGS[n]}" for n in below)]
        return page(f"The {slug}", self.texts[slug], links)


def page(title: str, text: str, links: list[str] | tuple[str, ...]) -> str:
    anchors = "".join(f'<li><a href="{link}">{link}</a></li>' for link in links)
    return (
        f"<!doctype html><html><head><title>{title}</title><script>var hidden = 1</script></head>"
        f"<body><p>{text}</p><ul>{anchors}</ul></body></html>"
    )


def _month(year: int, month: int) -> str:
    count = year * 12 + month - 1
    # Forward only and in order: whichever answer comes first, the same months are met first.
    near = [divmod(count + step, 12) for step in range(1, 7)]
    links = [f"/calendar/{y}/{m + 1}" for y, m in near]
    return page(f"{year}/{month}", f"Nothing happens in {year}/{month}.", links)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def _handler(site: CrawledSite) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.seen.append((self.path, self.headers.get("user-agent", "")))
            if self.path == "/slow" or self.path in site.held:
                site.gate.wait(60)
            status, headers, text = site.reply(self.path)
            body = text.encode()
            self.send_response(status)
            for name, value in {"content-length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:  # the crawler has given up waiting
                self.close_connection = True

    return Handler


@contextmanager
def crawled_site(elsewhere: str = "http://elsewhere.example/") -> Iterator[CrawledSite]:
    """The site, up while the block runs."""
    site = CrawledSite(elsewhere)
    thread = threading.Thread(target=site.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        site.gate.set()
        site.server.shutdown()
        site.server.server_close()
        thread.join()
