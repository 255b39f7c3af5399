-- readable-by: 1
-- Corpus, partitioned by index generation, and the journal of runs.
-- A collection's chunks live in partitions of the generation that is active; re-embedding builds another generation
-- beside it and switches `active_generation` in one transaction.
--
-- Generation 7 has the partitions chunk_7, sentence_7 and posting_7, made when the generation is. Writers and searches
-- name the partition itself, so that creating or dropping another collection never waits for them. Vectors are
-- L2-normalised, so the inner product is the cosine; past some thousand chunks a partition gets the index
--   using hnsw ((embedding::halfvec(DIMENSIONS)) halfvec_ip_ops)
-- which serves  order by embedding::halfvec(DIMENSIONS) <#> $1::halfvec(DIMENSIONS).

create table collection (
    collection_id     bigint generated always as identity primary key,
    tenant            text not null check (length(tenant) between 1 and 128),
    name              text not null check (length(name) between 1 and 128),
    text_config       text not null default 'english',  -- PostgreSQL text search configuration of the lexical leg
    settings          jsonb not null default '{}',
    active_generation bigint,
    created_at        timestamptz not null default now(),
    unique (tenant, name)
);

create table generation (
    generation_id     bigint generated always as identity primary key,
    collection_id     bigint not null references collection on delete cascade,
    embedder_id       text not null,
    embedder_checksum text not null,
    dimensions        int not null check (dimensions between 1 and 4000),
    chunker           text not null,                     -- name and parameters of the chunking that made it
    state             text not null check (state in ('building', 'active', 'retired')),
    chunk_count       bigint not null default 0,
    lexical_total     bigint not null default 0,         -- sum of chunk.lexical_length, for BM25's average length
    created_at        timestamptz not null default now()
);

create index on generation (collection_id);

alter table collection
    add foreign key (active_generation) references generation (generation_id) on delete set null;

create table document (
    document_key  bigint generated always as identity primary key,
    collection_id bigint not null references collection on delete cascade,
    document_id   text not null check (length(document_id) between 1 and 512),
    title         text not null,
    uri           text not null default '',
    text          text not null,
    metadata      jsonb not null default '{}',
    access_groups text[] not null default '{}',          -- empty: everyone of the tenant
    content_hash  text not null,                         -- of title, text, uri, metadata and groups
    created_at    timestamptz not null default now(),
    updated_at    timestamptz not null default now(),
    unique (collection_id, document_id)
);

create index on document using gin (metadata jsonb_path_ops);

create table chunk (
    generation_id   bigint not null,
    chunk_key       bigint not null,                     -- from chunk_key_seq
    document_key    bigint not null,                     -- of document; no foreign key: its checks would take a lock on
                                                         -- document whenever a partition is made or dropped
    position        int not null,                        -- counts chunks of the document from 0
    start_offset    int not null,                        -- code points in document.text, half-open
    end_offset      int not null,
    section_start   int not null,                        -- the parent section of about 1,000 tokens
    section_end     int not null,
    section_heading text not null default '',
    text            text not null,
    content_hash    text not null,
    token_count     int not null,
    lexical_length  int not null,                        -- number of lexeme positions
    lexemes         tsvector not null,                   -- of title, headings above and text
    embedding       halfvec not null,
    verdict         text not null default 'pass' check (verdict in ('pass', 'flag', 'neutralise', 'quarantine')),
    scan            jsonb not null default '{}',         -- rule version, techniques, reasons
    primary key (generation_id, chunk_key),
    unique (document_key, position, generation_id)
) partition by list (generation_id);

-- kept in the row, so that an exact search reads no second table; only what fits no page moves out
alter table chunk alter column embedding set storage main;

create sequence chunk_key_seq as bigint cache 1000;

create table sentence (
    generation_id bigint not null,
    chunk_key     bigint not null,
    position      int not null,                          -- counts sentences of the chunk from 0
    start_offset  int not null,                          -- code points in chunk.text, half-open
    end_offset    int not null,
    embedding     halfvec not null,
    primary key (generation_id, chunk_key, position)
) partition by list (generation_id);

alter table sentence alter column embedding set storage main;

create table posting (
    generation_id bigint not null,
    term          text not null,
    chunk_key     bigint not null,
    frequency     smallint not null,
    length        int not null,                          -- lexical_length of the chunk
    primary key (generation_id, term, chunk_key) include (frequency, length)
) partition by list (generation_id);

create table run (
    run_id       bigint generated always as identity primary key,
    tenant       text not null,
    request_id   text not null check (length(request_id) between 1 and 128),
    body_hash    text not null,
    state        text not null check (state in ('running', 'waiting', 'done', 'failed')),
    owner        text not null default '',               -- the replica that holds the lease
    lease_until  timestamptz,
    question     jsonb,                                  -- the request as consent allows it: text, hash or nothing
    session_id   text not null default '',
    subject      text not null default '',               -- whom EraseSubject erases
    created_at   timestamptz not null default now(),
    finished_at  timestamptz,
    unique (tenant, request_id)
);

create index on run (created_at);
create index on run (tenant, subject) where subject <> '';

create table run_events (
    run_id   bigint not null references run on delete cascade,
    sequence int not null check (sequence > 0),
    at       timestamptz not null default now(),
    kind     text not null,
    body     jsonb not null,
    primary key (run_id, sequence)
);

create table routing_policy (
    tenant     text primary key,                         -- '' is the default of all
    policy     jsonb not null,
    version    bigint not null,
    updated_at timestamptz not null default now(),
    updated_by text not null default ''
);

create table feedback (
    run_id        bigint primary key references run on delete cascade,
    rating        real check (rating between -1 and 1),
    correct_route text not null default '' check (correct_route in ('', 'standard', 'agentic')),
    comment       text not null default '',
    created_at    timestamptz not null default now()
);
