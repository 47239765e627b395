"""The crawler behind the task `crawl`: its child process, and how that is told and heard."""
