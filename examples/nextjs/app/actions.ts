"use server";

import { signUp } from "../sign-up.ts";

/** What the form says after it was sent. */
export type Said = string;

/** A server action, for the form of the page. Whoever knows its address can call it, so it checks what it gets. */
export async function signUpByForm(_before: Said, form: FormData): Promise<Said> {
  const customer = form.get("customer");
  if (typeof customer !== "string" || customer === "") return "Who are you?";
  const job = await signUp(customer);
  return job === null ? `${customer} has signed up before` : `Welcome! Job ${job} was added.`;
}
