import { parameter } from "../operate/view-rows.ts";

/** A condition that counts only if its value is given. */
export function ifGiven(place: number, column: string): string {
  const value = parameter(place, "text");
  return `(${value} is null or ${column} = ${value})`;
}
