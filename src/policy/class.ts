import { check, checkOptions, show, wholeNumber } from "../checks/options.ts";
import { ArgumentError } from "../errors.ts";
import type { ContextFunction } from "./declaration.ts";

/** float8 has room for six bands of virtual times, see sql/functions/names/classes.sql. */
const LAST_CLASS = 5;
/** In powers of two. Weights are within 2^-40 to 2^40. */
const BAND = 140;

export const aClass = wholeNumber(0, LAST_CLASS);

/** The weight of a job's lane in the database: its class is a factor of it, so that every order by virtual time has it. */
export const classedWeight = (weight: number, jobClass: number): number => weight * 2 ** (-BAND * jobClass);

/** The class that is in a weight. */
export const classOfWeight = (weight: number): number => Math.max(0, Math.round(-Math.log2(weight) / BAND));

/** The options `class` and `classShare`. Of each class with a share, its share. */
export interface Classes {
  readonly class: ContextFunction | null;
  readonly classShare: Readonly<Record<string, number>> | null;
}

/** @throws {ArgumentError} naming the option, its value, what is expected and a way out */
export function readClasses(options: Record<string, unknown>, sharedLimit: string | undefined): Classes {
  const { class: ofContext, classShare, fairness, order } = options;
  if (ofContext === undefined) {
    if (classShare !== undefined)
      throw new ArgumentError(
        `classShare must be left out without class, got ${show(classShare)}: all jobs are of class 0. Give class, a function of the context`,
      );
    return { class: null, classShare: null };
  }
  check("class", ofContext, {
    expects: "a function of the context",
    accepts: (it) => typeof it === "function",
  });
  if (fairness === null)
    throw new ArgumentError(
      "class must be left out if fairness is null, got a function: without shares, jobs go by priority. Give them a priority, or leave fairness out",
    );
  if (order === "strict")
    throw new ArgumentError(
      'class must be left out if order is "strict", got a function: each job waits for the one before it, whatever its class. Leave one of the two out',
    );
  return { class: ofContext as ContextFunction, classShare: readShares(classShare, sharedLimit) };
}

function readShares(classShare: unknown, sharedLimit: string | undefined): Classes["classShare"] {
  if (classShare === undefined) return null;
  if (sharedLimit !== undefined)
    throw new ArgumentError(
      `classShare must be left out with the shared limit "${sharedLimit}", got ${show(classShare)}: its other policies know no shares of these classes. Give this policy a gate of its own, or leave classShare out`,
    );
  const classes = Array.from({ length: LAST_CLASS }, (_, n) => String(n + 1));
  checkOptions("classShare", classShare, classes);
  for (const [key, share] of Object.entries(classShare))
    check(`classShare: ${key}`, share, {
      expects: "a number from 0.001 to 0.999, a part of what is admitted",
      accepts: (value) => typeof value === "number" && value >= 0.001 && value <= 0.999,
    });
  const shares = classShare as Record<string, number>;
  const sum = Object.values(shares).reduce((all, share) => all + share, 0);
  if (sum > 0.999)
    throw new ArgumentError(
      `classShare must leave something to class 0, got ${show(classShare)}, ${Number(sum.toFixed(3))} in all: expected a sum below 1. Lower one of them`,
    );
  return Object.keys(shares).length === 0 ? null : Object.freeze({ ...shares });
}
