/** Parsers for commander options. A bad value is an error before the command starts. */

import { InvalidArgumentError } from "commander";
import { HoldfastError } from "../errors/index.js";
import { parseBytes, parseDuration } from "../units/index.js";

export function wholeNumber(min: number, max = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= min && value <= max) return value;
    const range = max === Number.MAX_SAFE_INTEGER ? `, ${min} or more` : ` from ${min} to ${max}`;
    throw new InvalidArgumentError(`Expected a whole number${range}.`);
  };
}

export function realNumber(isValid: (value: number) => boolean, expected: string): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (text.trim() !== "" && isValid(value)) return value;
    throw new InvalidArgumentError(`Expected ${expected}.`);
  };
}

/** Sizes such as 64GiB, and durations such as 30s. */
export const size = reader(parseBytes);
export const duration = reader(parseDuration);

function reader<Value>(parse: (text: string) => Value): (text: string) => Value {
  return (text) => {
    try {
      return parse(text);
    } catch (error) {
      throw error instanceof HoldfastError ? new InvalidArgumentError(error.message) : error;
    }
  };
}
