"""Crawling, a plugin: the task `crawl`, the pages that it keeps, and every way to search them."""
