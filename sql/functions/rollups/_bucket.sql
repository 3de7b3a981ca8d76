-- The bucket in which a wait, a lag or a run is counted: bucket b has the times above 1.2^(b-1) up to 1.2^b seconds, as in
-- DDSketch (Masson, Rim and Lee, 2019). So _quantile is within a tenth. Less than a microsecond counts as one. Rows that were
-- folded before keep their counts, so another base needs a migration of them.
create or replace function _bucket(seconds float8) returns int language sql immutable
return ceil(ln(greatest(seconds, 1e-6)) / ln(1.2::float8))::int;
