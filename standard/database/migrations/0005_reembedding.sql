-- readable-by: 4
-- A change of embedder: a second generation of a collection, made beside the active one and switched to at once.
--
-- A generation lacks a document where it has no chunk of it: whoever changes a document takes its chunks out of every
-- generation and puts new ones into the active one; whoever brings the others up to date fills in what is missing.

-- How the embedder is opened again, as [embedding] names one, without its key; null: it is the process's own.
alter table generation add column embedder jsonb;

-- The change that a collection is in, from its start until what is not used any more has been dropped.
create table reembedding (
    collection_id bigint primary key references collection on delete cascade,
    generation_id bigint not null references generation on delete cascade,  -- the new one
    former_id     bigint not null references generation on delete cascade,  -- the one it was begun beside
    state         text not null default 'building' check (state in ('building', 'paused', 'ready', 'switched')),
    problem       text not null default '',                  -- why it does not go on, '' where it does
    attempts      int not null default 0,                    -- that failed in a row
    attempt_at    timestamptz not null default now(),        -- not before; now() = at once
    remaining     bigint,                                    -- documents the generation that does not answer lacks
    rate          real not null default 0,                   -- passages a second, of late
    started_at    timestamptz not null default now(),
    started_by    text not null default '',
    updated_at    timestamptz not null default now(),
    switched_at   timestamptz,
    cancelled     boolean not null default false             -- whoever is at it stops, so that it can be dropped
);

create index on reembedding (generation_id);
create index on reembedding (former_id);

-- Who changed embedders, when; kept when the collection is gone.
create table reembedding_change (
    change_id     bigint generated always as identity primary key,
    tenant        text not null,
    collection    text not null,
    action        text not null check (action in ('start', 'resume', 'switch', 'roll_back', 'finish', 'cancel')),
    from_embedder text not null,
    to_embedder   text not null,
    changed_at    timestamptz not null default now(),
    changed_by    text not null
);

create index on reembedding_change (tenant, collection, change_id);
