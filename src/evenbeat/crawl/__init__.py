"""Crawling, a plugin: the task `crawl`, the pages that it keeps, and every way to search them.

task, child, spider, guard, robots, text, urls    a crawl, from the worker to the network
documents (sql/), stale_sources                   what is kept, and crawling it again
routes, screen (templates/), commands             searching it: API, dashboard, command line
"""

TASK = "crawl"
