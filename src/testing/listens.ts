/** A `listen` or `unlisten` among statements. */
export interface Listen {
  /** Null: `unlisten *`. */
  readonly channel: string | null;
  readonly on: boolean;
}

const FORM = /^\s*(un)?listen\s+(?:"((?:[^"]|"")+)"|([a-z_\u0080-\uffff][\w$\u0080-\uffff]*)|(\*))\s*$/i;

/** The listens among statements, in their order. A name without quotes is in lower case, as in PostgreSQL. */
export function listensOf(statements: string): Listen[] {
  if (!/listen/i.test(statements)) return [];
  return statements.split(";").flatMap((statement) => {
    const [found, un, quoted, bare, all] = FORM.exec(statement) ?? [];
    if (found === undefined || (all && un === undefined)) return [];
    const channel = quoted?.replaceAll('""', '"') ?? bare?.toLowerCase() ?? null;
    return [{ channel, on: un === undefined }];
  });
}
