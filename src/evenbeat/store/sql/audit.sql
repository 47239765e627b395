-- Who changed what.

-- name: add_audit_entry
-- Notes one change, in the transaction that makes it where that is open.
INSERT INTO evenbeat.audit_entries
    (id, created_at, actor, role, via, address, action, ids, name, changed, before, after)
VALUES (%(id)s, {now}, %(actor)s, %(role)s, %(via)s, %(address)s, %(action)s, %(ids)s::uuid[],
        %(name)s, %(changed)s, %(before)s::jsonb, %(after)s::jsonb)
RETURNING id;

-- name: audit_entries
-- A page of the entries that match, newest first.
SELECT id, created_at, actor, role, via, address, action, ids, name, changed, before, after
FROM evenbeat.audit_entries
WHERE (%(actor)s::text IS NULL OR actor = %(actor)s)
  AND (%(actions)s::text[] IS NULL OR action = ANY (%(actions)s)
       OR split_part(action, '.', 1) = ANY (%(actions)s))
  AND (%(object_id)s::uuid IS NULL OR ids @> ARRAY[%(object_id)s::uuid])
  AND (%(search)s::text IS NULL OR name ILIKE %(search)s OR actor ILIKE %(search)s)
  AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s)
ORDER BY created_at DESC, id DESC
LIMIT %(limit)s OFFSET %(offset)s;

-- name: count_audit_entries
-- How many `audit_entries` would give without a limit.
SELECT count(*)
FROM evenbeat.audit_entries
WHERE (%(actor)s::text IS NULL OR actor = %(actor)s)
  AND (%(actions)s::text[] IS NULL OR action = ANY (%(actions)s)
       OR split_part(action, '.', 1) = ANY (%(actions)s))
  AND (%(object_id)s::uuid IS NULL OR ids @> ARRAY[%(object_id)s::uuid])
  AND (%(search)s::text IS NULL OR name ILIKE %(search)s OR actor ILIKE %(search)s)
  AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s);

-- name: prune_audit_entries
-- Forgets old entries, in batches.
DELETE FROM evenbeat.audit_entries
WHERE id IN (
    SELECT id FROM evenbeat.audit_entries
    WHERE created_at < %(older_than)s
    ORDER BY created_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED)
RETURNING id;

-- name: jobs_before_change
-- These jobs as they are, locked until the transaction ends: what the audit log has as "before".
SELECT {job} FROM evenbeat.jobs j WHERE j.id = ANY (%(ids)s::uuid[]) ORDER BY j.id FOR UPDATE;
