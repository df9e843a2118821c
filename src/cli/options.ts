/** Readers of option texts, for commander: what is wrong is said in a sentence, and nothing is started. */

import { InvalidArgumentError } from "commander";
import { HoldfastError } from "../errors/index.js";
import { parseBytes, parseDuration } from "../units/index.js";

export function wholeNumber(least: number, most = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= least && value <= most) return value;
    const end = most === Number.MAX_SAFE_INTEGER ? "" : ` to ${most}`;
    throw new InvalidArgumentError(`It takes a whole number from ${least}${end}.`);
  };
}

export function realNumber(isGood: (value: number) => boolean, wanted: string): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (text.trim() !== "" && isGood(value)) return value;
    throw new InvalidArgumentError(`It takes ${wanted}.`);
  };
}

/** Sizes such as 64GiB, and times such as 30s. */
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
