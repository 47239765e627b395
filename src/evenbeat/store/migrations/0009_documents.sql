-- Crawled sites and their pages, searchable by words.

-- A source is what is crawled again and again: a source_id, or the site where none was given.
CREATE TABLE evenbeat.sources (
    id            text        PRIMARY KEY COLLATE "C" CHECK (id <> ''),
    url           text        NOT NULL,
    name          text,
    payload       jsonb       NOT NULL,             -- how it was crawled last: the job's arguments
    queue         text        NOT NULL COLLATE "C",
    job_id        uuid        NOT NULL,             -- the job that crawled it last; it may be gone
    first_seen_at timestamptz NOT NULL,
    tried_at      timestamptz NOT NULL,
    crawled_at    timestamptz,                      -- the last crawl that succeeded
    queued_at     timestamptz,                      -- when it was last queued for being stale
    items_crawled integer     NOT NULL DEFAULT 0,
    items_indexed integer     NOT NULL DEFAULT 0
);

-- Which sources are stale.
CREATE INDEX sources_by_age ON evenbeat.sources ((coalesce(crawled_at, first_seen_at)));

CREATE TABLE evenbeat.documents (
    id            uuid        PRIMARY KEY,
    source        text        NOT NULL COLLATE "C" REFERENCES evenbeat.sources (id) ON DELETE CASCADE,
    key           text        NOT NULL COLLATE "C", -- the URL without what makes no difference
    url           text        NOT NULL,
    title         text        NOT NULL,
    text          text        NOT NULL,
    content_hash  bytea       NOT NULL CHECK (length(content_hash) = 32),
    depth         integer     NOT NULL CHECK (depth >= 0),
    job_id        uuid        NOT NULL,
    first_seen_at timestamptz NOT NULL,
    seen_at       timestamptz NOT NULL,
    changed_at    timestamptz NOT NULL,
    gone_at       timestamptz,
    search        tsvector    NOT NULL GENERATED ALWAYS AS (
        setweight(to_tsvector('pg_catalog.english', title), 'A')
        || setweight(to_tsvector('pg_catalog.english', text), 'B')) STORED,

    CONSTRAINT one_document_per_page UNIQUE (source, key),
    CONSTRAINT changed_between_first_and_last_sight
        CHECK (first_seen_at <= changed_at AND changed_at <= seen_at)
) WITH (
    -- Most pages are seen again and have not changed: leave room to note that on the same page.
    fillfactor = 80
);

-- What is gone is not searched.
CREATE INDEX documents_search ON evenbeat.documents USING gin (search) WHERE gone_at IS NULL;
CREATE INDEX documents_newest ON evenbeat.documents (changed_at DESC, id) WHERE gone_at IS NULL;
