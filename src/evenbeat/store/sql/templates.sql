-- Templates of jobs.

-- name: templates
-- A page of them by name, of those whose name or description has the text in it.
SELECT name, description, parameters, body, version, created_at, updated_at, created_by
FROM evenbeat.templates
WHERE %(search)s::text IS NULL OR name ILIKE %(search)s OR description ILIKE %(search)s
ORDER BY name
LIMIT %(limit)s OFFSET %(offset)s;

-- name: count_templates
-- How many there are in all.
SELECT count(*) FROM evenbeat.templates
WHERE %(search)s::text IS NULL OR name ILIKE %(search)s OR description ILIKE %(search)s;

-- name: template
-- One of them.
SELECT name, description, parameters, body, version, created_at, updated_at, created_by
FROM evenbeat.templates WHERE name = %(id)s;

-- name: add_template
-- Keeps a new one; nothing comes back when the name is taken.
INSERT INTO evenbeat.templates (name, description, parameters, body, created_at, updated_at,
                                created_by)
VALUES (%(name)s, %(description)s, %(parameters)s::jsonb, %(body)s::jsonb,
        {now}, {now}, %(created_by)s)
ON CONFLICT (name) DO NOTHING
RETURNING name, description, parameters, body, version, created_at, updated_at, created_by;

-- name: save_template
-- Keeps one, in place of the one of that name if there is any. What is the same already stays.
INSERT INTO evenbeat.templates AS t (name, description, parameters, body, created_at, updated_at,
                                     created_by)
VALUES (%(name)s, %(description)s, %(parameters)s::jsonb, %(body)s::jsonb,
        {now}, {now}, %(created_by)s)
ON CONFLICT (name) DO UPDATE
SET description = excluded.description, parameters = excluded.parameters, body = excluded.body,
    version = t.version + CASE WHEN (t.description, t.parameters, t.body) IS NOT DISTINCT FROM
                                    (excluded.description, excluded.parameters, excluded.body)
                               THEN 0 ELSE 1 END,
    updated_at = CASE WHEN (t.description, t.parameters, t.body) IS NOT DISTINCT FROM
                           (excluded.description, excluded.parameters, excluded.body)
                      THEN t.updated_at ELSE excluded.updated_at END
RETURNING name, description, parameters, body, version, created_at, updated_at, created_by;

-- name: delete_template
-- Removes one; jobs made from it stay.
DELETE FROM evenbeat.templates WHERE name = %(name)s RETURNING name;
