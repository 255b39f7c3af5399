-- readable-by: 1
-- What retrieval looks up besides vectors and postings: titles by name, and whether a collection has restricted documents.

-- A title as people write it in a sentence: without a closing bracket ("Rush (band)"), case folded, cut to fit an index.
create function title_key(title text) returns text
    language sql immutable strict parallel safe
    return left(lower(regexp_replace(title, '\s*\([^()]*\)\s*$', '')), 128);

create index document_title_key on document (collection_id, title_key(title));

create index document_title_words on document using gin (to_tsvector('simple', title));

create index document_restricted on document (collection_id) where access_groups <> '{}';
