-- readable-by: 3
-- Who may call, who changed how questions are routed, and what the agentic route would have said.

-- A key is 256 random bits, so its SHA-256 can be kept as it is: there is nothing that one could guess.
create table api_key (
    key_id      text primary key check (key_id ~ '^[0-9a-f]{12}$'),
    tenant      text not null check (length(tenant) between 1 and 128),
    digest      bytea not null check (length(digest) = 32),  -- of the whole key
    role        text not null check (role in ('operator', 'admin', 'user')),
    collections text[],                                      -- null: all of the tenant
    groups      text[] not null default '{}',                -- access groups on documents
    note        text not null default '',
    created_at  timestamptz not null default now(),
    expires_at  timestamptz,                                 -- null: never
    revoked_at  timestamptz
);

create index on api_key (tenant);

create table routing_policy_change (
    change_id  bigint generated always as identity primary key,
    tenant     text not null,                                -- as in routing_policy
    version    bigint not null,                              -- after the change
    before     jsonb,                                        -- null: the settings' defaults were in force
    after      jsonb not null,
    changed_at timestamptz not null default now(),
    changed_by text not null
);

create index on routing_policy_change (tenant, version);

-- What the agentic route answered aside, while a run was answered by the standard one.
create table shadow_answer (
    run_id     bigint primary key references run on delete cascade,
    answer     jsonb not null,
    created_at timestamptz not null default now()
);
