import { createHash, randomUUID, timingSafeEqual } from "node:crypto";
import type { Ui, UiOptions, Viewer } from "graphile-worker-dispatch-policy/ui";

/** The path of the application below which the pages are. */
export const BASE = "/admin/jobs";

/** The application's own sign-in, as far as the pages need one. */
export interface SignIn {
  readonly form: string;
  /** Says who sends a request, by the session in its cookie. A stranger is sent to the form. */
  readonly authorize: UiOptions["authorize"];
  /** The cookie of a new session. Null: that is not the password. */
  enter(password: string): string | null;
}

/** What each server mounts. */
export interface App {
  readonly ui: Ui;
  readonly signIn: SignIn;
}

/** A server that listens on a port of its own. */
export interface Listening {
  readonly origin: string;
  close(): Promise<unknown>;
}

const FORM = `<!doctype html><title>Sign in</title><form method="post" action="/sign-in">
<label>Password <input name="password" type="password"></label> <button>Sign in</button></form>`;

export function makeSignIn(password: string): SignIn {
  /** By the id in the cookie. An application has a store for that. */
  const sessions = new Map<string, Viewer>();
  return {
    form: FORM,
    authorize(request) {
      const id = /(?:^|; )session=([\w-]+)/.exec(request.headers.get("cookie") ?? "")?.[1];
      const viewer = sessions.get(id ?? "");
      return viewer ?? new Response(null, { status: 303, headers: { location: "/sign-in" } });
    },
    enter(given) {
      if (!isSame(given, password)) return null;
      const id = randomUUID();
      sessions.set(id, { name: "ana", role: "operator" }); // the audit has this name
      return `session=${id}; HttpOnly; SameSite=Lax; Path=/`; // and Secure, behind TLS
    },
  };
}

/** Compares digests, so that the time says nothing about the password. */
function isSame(one: string, other: string): boolean {
  const digest = (it: string) => createHash("sha256").update(it).digest();
  return timingSafeEqual(digest(one), digest(other));
}
