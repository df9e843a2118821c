/** Shapes of plain data that was read from a file: the file may be of another version, damaged or altered. */

import { isRecord } from "./json.js";

/** Says where a value is not as it should be, and what should be there; undefined where it fits. */
export type Shape = (value: unknown, at: string) => string | undefined;

export const fits = (isFitting: (value: unknown) => boolean, wanted: string): Shape => {
  return (value, at) => (isFitting(value) ? undefined : `${at} is no ${wanted}`);
};
export const text = fits((value) => typeof value === "string", "text");
export const flag = fits((value) => typeof value === "boolean", "true or false");
export const number = fits((value) => Number.isFinite(value), "number");
export const count = fits((value) => Number.isFinite(value) && Number(value) >= 0, "number from 0");
/** Milliseconds since 1970, up to the last that a Date can hold. */
export const moment = fits(
  (value) => Number(value) >= 0 && Number(value) <= 8.64e15 && typeof value === "number",
  "time",
);
export const oneOf = (...words: readonly string[]): Shape =>
  fits((value) => words.includes(String(value)), `one of ${words.join(", ")}`);
export const optional = (shape: Shape): Shape => {
  return (value, at) => (value === undefined ? undefined : shape(value, at));
};

export function listOf(shape: Shape): Shape {
  return (value, at) => {
    if (!Array.isArray(value)) return `${at} is no list`;
    for (const [index, item] of value.entries()) {
      const problem = shape(item, `${at}[${index}]`);
      if (problem !== undefined) return problem;
    }
    return undefined;
  };
}

/** Fields that are not named may be there too: a later version may have more to tell. */
export function recordOf(fields: Readonly<Record<string, Shape>>): Shape {
  return (value, at) => {
    if (!isRecord(value)) return `${at} is no record`;
    for (const [name, shape] of Object.entries(fields)) {
      const problem = shape(value[name], at === "it" ? name : `${at}.${name}`);
      if (problem !== undefined) return problem;
    }
    return undefined;
  };
}
