"""Moving in: what other schedulers run, read into job documents, compared, and written back out.

Every reader gives a `Source` of documents as `POST /api/v1/jobs` takes them. `plan.py` compares
them with the jobs that are there. Nothing in here writes: the command line sends the documents.
"""
