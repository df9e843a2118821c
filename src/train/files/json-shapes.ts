/** Checks plain data that was read from a file: the file may be damaged, altered or of another version. */

import { isRecord } from "./json.js";

/** Returns the first problem with its position, or undefined if the value fits. */
export type Shape = (value: unknown, at: string) => string | undefined;

export const fits = (isValid: (value: unknown) => boolean, expected: string): Shape => {
  return (value, at) => (isValid(value) ? undefined : `${at} is not ${expected}`);
};
export const text = fits((value) => typeof value === "string", "a string");
export const flag = fits((value) => typeof value === "boolean", "true or false");
export const number = fits((value) => Number.isFinite(value), "a number");
export const count = fits((value) => Number.isFinite(value) && Number(value) >= 0, "a number from 0");
/** An index, or a count of things. */
export const wholeNumber = fits(
  (value) => Number.isSafeInteger(value) && Number(value) >= 0,
  "a whole number from 0",
);
/** Milliseconds since 1970, up to the maximum of a Date. */
export const moment = fits(
  (value) => Number(value) >= 0 && Number(value) <= 8.64e15 && typeof value === "number",
  "a time",
);
export const oneOf = (...words: readonly string[]): Shape =>
  fits((value) => words.includes(String(value)), `one of ${words.join(", ")}`);
export const optional = (shape: Shape): Shape => {
  return (value, at) => (value === undefined ? undefined : shape(value, at));
};

export function listOf(shape: Shape): Shape {
  return (value, at) => {
    if (!Array.isArray(value)) return `${at} is not a list`;
    for (const [index, item] of value.entries()) {
      const problem = shape(item, `${at}[${index}]`);
      if (problem !== undefined) return problem;
    }
    return undefined;
  };
}

/** Additional fields are allowed: a later version may write more. */
export function recordOf(fields: Readonly<Record<string, Shape>>): Shape {
  return (value, at) => {
    if (!isRecord(value)) return `${at} is not a record`;
    for (const [name, shape] of Object.entries(fields)) {
      const problem = shape(value[name], at === "it" ? name : `${at}.${name}`);
      if (problem !== undefined) return problem;
    }
    return undefined;
  };
}
