"""Crawling, a plugin: the task `crawl`, the pages that it keeps, and every way to search them.

task, child, spider, guard, robots, normal_forms    a crawl, from the worker to the network
documents (sql/)                                    what is kept
routes (templates/), commands                       searching it: API, dashboard, command line
"""

TASK = "crawl"
