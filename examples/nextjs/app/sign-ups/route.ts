import { z } from "zod";
import { signUp } from "../../sign-up.ts";

const Body = z.object({ customer: z.string().min(1) });

/** `POST /sign-ups` with a customer as JSON, for programs. */
export async function POST(request: Request): Promise<Response> {
  const body = Body.safeParse(await request.json().catch(() => null));
  if (!body.success) return Response.json({ error: z.prettifyError(body.error) }, { status: 400 });
  const { customer } = body.data;
  const job = await signUp(customer);
  if (job === null) return Response.json({ error: `${customer} has signed up before` }, { status: 409 });
  return Response.json({ job }, { status: 201 });
}
