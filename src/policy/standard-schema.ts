/**
 * The interface of a payload's schema: https://standardschema.dev. zod 3.24+, zod 4, valibot and arktype have it.
 *
 * Only the types are copied, so that this package needs no schema library and cannot clash with the version of yours.
 * `validate` is written loosely, because the libraries disagree about the type of its second argument.
 */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown, ...rest: never[]) => unknown;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** The type of the payload that a job is added with. */
export type SchemaInput<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["input"];

/** The type of the payload that `context` and the task get: the schema's output, with its defaults and coercions. */
export type SchemaOutput<S extends StandardSchema> = NonNullable<S["~standard"]["types"]>["output"];

/** The synchronous result of `validate`: a value, or issues. */
export interface SchemaResult {
  readonly value?: unknown;
  readonly issues?: readonly SchemaIssue[] | undefined;
}

export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

export function isStandardSchema(value: unknown): value is StandardSchema {
  // arktype's schemas are functions
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  const standard = (value as Partial<StandardSchema>)["~standard"];
  return typeof standard === "object" && standard !== null && typeof standard.validate === "function";
}
