"""The child process of a crawl: `python -m evenbeat.crawl.child`.

Scrapy's event loop can be run once in a process, and what it parses was written by strangers. So it
has a process of its own, without the database's password, that can be ended at any moment: the
order comes in on standard input, pages go out on standard output.
"""

import json
import os
import sys
from collections import Counter
from typing import Any, BinaryIO

from evenbeat.crawl.order import Order, Tell
from evenbeat.crawl.robots import Robots, RobotsUnreadable, Rules
from evenbeat.external.addresses import AddressRefused
from evenbeat.external.fetching import FetchTrouble

_ENDED_BY = {"finished": "complete", "closespider_timeout": "max_seconds"}


def main() -> None:
    """Do the crawl that standard input describes."""
    order, out = Order.decoded(sys.stdin.read()), _own_output()

    def tell(message: dict[str, Any]) -> None:
        # Blocks while the worker is busy: whoever writes faster than it stores has to wait.
        out.write(json.dumps(message).encode() + b"\n")
        out.flush()

    robots, counts = Robots(order.policy, order.user_agent), Counter[str]()
    rules = _rules(robots, order, tell)
    if rules is not None:
        counts["crawl_delay_ms"] = int(rules.delay * 1000)
        _crawl(order, robots, counts, tell)


def _own_output() -> BinaryIO:
    """Standard output for messages alone; whatever else is printed goes to standard error."""
    kept = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(kept, "wb")


def _rules(robots: Robots, order: Order, tell: Tell) -> Rules | None:
    """What the site asks of robots; None when it cannot be known, and the crawl is over."""
    try:
        return robots.read_now(order.url)
    except AddressRefused as error:
        code, told = "address_refused", str(error)
    except RobotsUnreadable as error:
        code, told = "robots_unreadable", str(error)
    except FetchTrouble as error:
        code, told = error.code, str(error)
    tell({"kind": "start_failed", "code": code, "message": told[:1000]})
    return None


def _crawl(order: Order, robots: Robots, counts: Counter[str], tell: Tell) -> None:
    # Loaded late: most sites that cannot be crawled have said so by now.
    from scrapy.crawler import CrawlerProcess  # noqa: PLC0415

    from evenbeat.crawl.spider import SiteSpider, settings_for  # noqa: PLC0415

    process = CrawlerProcess(settings_for(order, robots, counts, tell))
    crawler = process.create_crawler(SiteSpider)
    process.crawl(crawler, order=order, counts=counts, tell=tell)
    process.start(install_signal_handlers=False)  # a signal ends it at once
    spider, stats = crawler.spider, crawler.stats
    if not isinstance(spider, SiteSpider) or stats is None:
        return  # it never began; the worker misses the end
    reason = str(stats.get_value("finish_reason"))
    ended_by = "max_pages" if counts["spent"] else _ENDED_BY.get(reason, reason)
    tell(spider.summary() | {"ended_by": ended_by})


if __name__ == "__main__":
    main()
