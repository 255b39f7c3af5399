-- readable-by: 1
-- A second wall between tenants, for a statement that forgets its first: what hands out text reads as the role
-- pointsman_reader, which sees the rows of the tenant named in the setting pointsman.tenant, and none without it.
--
-- Everybody else sees what they saw before: the policy pointsman_all lets them, so ingest, administration and earlier
-- releases go on as they were. The reader may read the partitioned tables alone, never a partition by its own name.
--
-- Roles belong to the whole server, so making one may be forbidden here. The function then says why and changes
-- nothing; `pointsman migrate` calls it again until it has nothing to say.

create function pointsman_raise_wall() returns text
    language plpgsql as
$$
declare
    settable constant text := case when current_setting('server_version_num')::int >= 160000 then 'SET' else 'MEMBER' end;
    -- Users who inherit from the reader meet its policy as well: they go past it, at the price of a check a row. Where
    -- the server can grant the role without inheritance they never meet it.
    granted constant text := case when settable = 'SET' then ' with inherit false' else '' end;
    own constant text := $q$current_user <> 'pointsman_reader' or generation_id in (
        select g.generation_id from collection c join generation g on g.collection_id = c.collection_id
        where c.tenant = current_setting('pointsman.tenant', true))$q$;
    part text;
begin
    if not exists (select from pg_roles where rolname = 'pointsman_reader') then
        begin
            create role pointsman_reader nologin;
        exception
            when duplicate_object or unique_violation then null;  -- another database's migration was quicker
            when insufficient_privilege then
                return 'this user may not create roles; have an administrator run: create role pointsman_reader nologin; '
                    || format('grant pointsman_reader to %I', current_user) || granted;
        end;
    end if;
    if exists (select from pg_roles where rolname = 'pointsman_reader' and (rolsuper or rolbypassrls)) then
        return 'the role pointsman_reader may pass by row security; have an administrator run: '
            || 'alter role pointsman_reader nosuperuser nobypassrls';
    end if;
    if not pg_has_role(current_user, 'pointsman_reader', settable) then
        begin
            execute format('grant pointsman_reader to %I', current_user) || granted;
        exception
            when insufficient_privilege then
                return format('have an administrator run: grant pointsman_reader to %I', current_user) || granted;
        end;
    end if;
    execute format('grant usage on schema %I to pointsman_reader', current_schema());
    grant select on collection, generation, document, chunk, sentence, posting to pointsman_reader;
    foreach part in array array['document', 'chunk', 'sentence', 'posting'] loop
        execute format('drop policy if exists pointsman_all on %I', part);
        execute format('create policy pointsman_all on %I using (true) with check (true)', part);
        execute format('drop policy if exists pointsman_tenant on %I', part);
        execute format('create policy pointsman_tenant on %I as restrictive for select to pointsman_reader using (%s)', part,
            case when part = 'document' then $q$current_user <> 'pointsman_reader' or collection_id in (
                select c.collection_id from collection c where c.tenant = current_setting('pointsman.tenant', true))$q$
            else own end);
        execute format('alter table %I enable row level security', part);
        execute format('alter table %I force row level security', part);
    end loop;
    return '';
end
$$;

select pointsman_raise_wall();
