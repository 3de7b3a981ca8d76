"use client";

import { useActionState } from "react";
import { signUpByForm } from "./actions.ts";

export function SignUpForm() {
  const [said, send, isSending] = useActionState(signUpByForm, "");
  return (
    <form action={send}>
      <label>
        Customer <input name="customer" required />
      </label>
      <button type="submit" disabled={isSending}>
        Sign up
      </button>
      <output>{said}</output>
    </form>
  );
}
