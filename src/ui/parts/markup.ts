import { html as escaping } from "hono/html";

/** Text of a page. Values that are put into it are escaped; other markup is put in as it is. */
export type Markup = ReturnType<typeof escaping>;

export const html = escaping;

/** Nothing. */
export const none: Markup = escaping``;
