-- Crawled pages: written only by the run that holds the lease, found by their words.

-- name: begin_crawl
-- Notes that a source is being crawled, by the run that holds the lease. Returns nothing when the
-- lease is lost.
WITH held AS (
    SELECT j.id, j.payload, j.queue FROM evenbeat.jobs j
    WHERE j.id = %(job_id)s AND j.lock_token = %(token)s
    FOR SHARE
)
INSERT INTO evenbeat.sources AS s (id, url, name, payload, queue, job_id, first_seen_at, tried_at)
SELECT %(source)s, %(url)s, %(name)s::text, held.payload, held.queue, held.id,
       {now}, {now}
FROM held
ON CONFLICT (id) DO UPDATE
SET url = excluded.url, name = coalesce(excluded.name, s.name), payload = excluded.payload,
    queue = excluded.queue, job_id = excluded.job_id, tried_at = excluded.tried_at
RETURNING s.id;

-- name: end_crawl
-- Notes that a crawl has succeeded, by the run that holds the lease.
WITH held AS (
    SELECT 1 FROM evenbeat.jobs j
    WHERE j.id = %(job_id)s AND j.lock_token = %(token)s
    FOR SHARE
)
UPDATE evenbeat.sources s
SET crawled_at = {now},
    items_crawled = %(items_crawled)s, items_indexed = %(items_indexed)s
FROM held
WHERE s.id = %(source)s
RETURNING s.id;

-- name: save_documents
-- Keeps a batch of pages, each key at most once, and marks those that are gone. The lease is
-- checked and held in the same statement: a run that has lost it writes nothing, and nobody can
-- take it over in between. A page whose text is as it was is only noted as seen, so its words are
-- not indexed again. Returns how many pages were new or changed, and gone; nothing when the lease is
-- lost.
WITH held AS (
    SELECT 1 FROM evenbeat.jobs j
    WHERE j.id = %(job_id)s AND j.lock_token = %(token)s
    FOR SHARE
),
given AS (
    SELECT g.*, {now} AS seen_at
    FROM held, unnest(%(keys)s::text[], %(urls)s::text[], %(titles)s::text[], %(texts)s::text[],
                      %(hashes)s::bytea[], %(depths)s::integer[])
         AS g (key, url, title, text, content_hash, depth)
),
same AS (
    UPDATE evenbeat.documents d
    SET seen_at = greatest(d.seen_at, given.seen_at), depth = given.depth, job_id = %(job_id)s
    FROM given
    WHERE d.source = %(source)s AND d.key = given.key AND d.content_hash = given.content_hash
      AND d.gone_at IS NULL
    RETURNING d.key
),
changed AS (
    INSERT INTO evenbeat.documents AS d (id, source, key, url, title, text, content_hash, depth,
                                         job_id, first_seen_at, seen_at, changed_at)
    SELECT evenbeat.uuid7(seen_at), %(source)s, key, url, title, text, content_hash, depth,
           %(job_id)s, seen_at, seen_at, seen_at
    FROM given
    WHERE NOT EXISTS (SELECT 1 FROM same WHERE same.key = given.key)
    ON CONFLICT (source, key) DO UPDATE
    SET url = excluded.url, title = excluded.title, text = excluded.text,
        content_hash = excluded.content_hash, depth = excluded.depth, job_id = excluded.job_id,
        seen_at = greatest(d.seen_at, excluded.seen_at),
        changed_at = greatest(d.seen_at, excluded.seen_at), gone_at = NULL
    RETURNING d.key
),
gone AS (
    UPDATE evenbeat.documents d
    SET gone_at = {now}, job_id = %(job_id)s
    FROM held
    WHERE d.source = %(source)s AND d.key = ANY (%(gone)s::text[]) AND d.gone_at IS NULL
      AND NOT d.key = ANY (%(keys)s::text[])
    RETURNING d.key
)
SELECT (SELECT count(*) FROM changed), (SELECT count(*) FROM gone) FROM held;

-- name: search_documents
-- A page of the documents with these words, the best first: words near each other and words of the
-- title count more, long pages less. Where very many match, so many are ranked. Snippets are made
-- for this page of results alone, each from a part of the text only: finding the best place takes
-- time by the square of how often the words occur. That part begins a little before the place where
-- the words stand as they were written, or otherwise where the first of their stems begins a word.
WITH question AS (
    SELECT websearch_to_tsquery('pg_catalog.english', %(words)s) AS words,
           ' ' || lower(trim(BOTH '"' FROM %(words)s)) AS phrase,
           tsvector_to_array(to_tsvector('pg_catalog.english', %(words)s)) AS stems
),
matching AS MATERIALIZED (
    SELECT d.id, d.search
    FROM evenbeat.documents d
    WHERE d.search @@ websearch_to_tsquery('pg_catalog.english', %(words)s) AND d.gone_at IS NULL
      AND (%(source)s::text IS NULL OR d.source = %(source)s)
    LIMIT 5000
),
found AS (
    SELECT matching.id,
           CASE WHEN cardinality(stems) <= 8 THEN ts_rank_cd(matching.search, question.words, 1)
                -- how near they are takes long to see of many; an "or" on top keeps it from looking
                ELSE ts_rank(matching.search, question.words || question.words, 1) END AS rank
    FROM matching, question
    ORDER BY rank DESC, matching.id
    LIMIT %(limit)s OFFSET %(offset)s
)
SELECT d.id, d.source, d.url, d.title, d.depth, d.job_id, d.first_seen_at, d.seen_at,
       d.changed_at, d.gone_at, encode(d.content_hash, 'hex'),
       found.rank::double precision,
       ts_headline('pg_catalog.english', substr(d.text, greatest(1, place.begins - 300), 3000),
                   question.words,
                   'StartSel=' || %(begin)s || ',StopSel=' || %(end)s
                   || ',MaxFragments=2,MaxWords=35,MinWords=12,FragmentDelimiter=" … "')
FROM found JOIN evenbeat.documents d ON d.id = found.id, question,
     LATERAL (
         SELECT coalesce(nullif(strpos(min(plain.text), question.phrase), 0),
                         min(nullif(strpos(plain.text, ' ' || rtrim(stem, 'i')), 0)), 1) AS begins
         FROM (SELECT ' ' || replace(lower(d.text), E'\n', ' ') AS text
               OFFSET 0) AS plain
              LEFT JOIN unnest(question.stems) AS stem ON true
     ) AS place
ORDER BY found.rank DESC, d.id;

-- name: count_found
-- How many documents have these words.
SELECT count(*) FROM evenbeat.documents d
WHERE d.search @@ websearch_to_tsquery('pg_catalog.english', %(words)s) AND d.gone_at IS NULL
  AND (%(source)s::text IS NULL OR d.source = %(source)s);

-- name: newest_documents
-- A page of the documents, those that changed last first, with how they begin.
SELECT d.id, d.source, d.url, d.title, d.depth, d.job_id, d.first_seen_at, d.seen_at,
       d.changed_at, d.gone_at, encode(d.content_hash, 'hex'), NULL::double precision, left(d.text, 300)
FROM evenbeat.documents d
WHERE d.gone_at IS NULL AND (%(source)s::text IS NULL OR d.source = %(source)s)
ORDER BY d.changed_at DESC, d.id
LIMIT %(limit)s OFFSET %(offset)s;

-- name: count_documents
-- How many documents there are.
SELECT count(*) FROM evenbeat.documents d
WHERE d.gone_at IS NULL AND (%(source)s::text IS NULL OR d.source = %(source)s);

-- name: document
-- One document with its whole text, gone or not.
SELECT d.id, d.source, d.url, d.title, d.depth, d.job_id, d.first_seen_at, d.seen_at,
       d.changed_at, d.gone_at, encode(d.content_hash, 'hex'), d.text FROM evenbeat.documents d WHERE d.id = %(id)s;

-- name: delete_document
-- Removes one document; the next crawl that comes by its page adds it again.
DELETE FROM evenbeat.documents WHERE id = %(id)s RETURNING id;

-- name: source
-- One source.
SELECT s.id, s.url, s.name, s.job_id, s.first_seen_at, s.tried_at, s.crawled_at, s.queued_at,
       s.items_crawled, s.items_indexed FROM evenbeat.sources s WHERE s.id = %(id)s;

-- name: sources
-- A page of the sources, those that were crawled longest ago first.
SELECT s.id, s.url, s.name, s.job_id, s.first_seen_at, s.tried_at, s.crawled_at, s.queued_at,
       s.items_crawled, s.items_indexed FROM evenbeat.sources s
ORDER BY coalesce(s.crawled_at, s.first_seen_at), s.id
LIMIT %(limit)s OFFSET %(offset)s;

-- name: count_sources
-- How many sources there are.
SELECT count(*) FROM evenbeat.sources;

-- name: stale_sources
-- Sources that no crawl has gone through for too long and that were not queued lately. One that
-- some job is for already, waiting, running or paused, is left to that job: the live crawls are
-- read once, and each names its source by id or by URL.
WITH live AS MATERIALIZED (
    SELECT j.id, coalesce(j.payload ->> 'source_id', j.payload ->> 'subreddit_id',
                          j.payload ->> 'url', '') AS source
    FROM evenbeat.jobs j
    WHERE j.task = 'crawl' AND j.status IN ('pending', 'scheduled', 'running', 'paused')
)
SELECT s.id, s.payload, s.queue
FROM evenbeat.sources s
WHERE coalesce(s.crawled_at, s.first_seen_at) < {now} - %(age)s::interval
  AND (s.queued_at IS NULL OR s.queued_at < {now} - %(pause)s::interval)
  AND s.job_id NOT IN (SELECT id FROM live)
  AND s.id NOT IN (SELECT source FROM live)
  AND s.url NOT IN (SELECT source FROM live)
ORDER BY coalesce(s.crawled_at, s.first_seen_at), s.id
LIMIT %(limit)s;

-- name: source_queued
-- Notes that a source was queued for being stale.
UPDATE evenbeat.sources SET queued_at = {now}
WHERE id = %(id)s
RETURNING id;
