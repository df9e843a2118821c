/** Readers of option texts, for commander: what is wrong is said in a sentence, and nothing is started. */

import { InvalidArgumentError } from "commander";
import { HoldfastError } from "../errors/index.js";
import { type Bytes, parseBytes } from "../units/index.js";

export function wholeNumber(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && Number.isSafeInteger(value) && value >= least) return value;
    throw new InvalidArgumentError(`It takes a whole number from ${least}.`);
  };
}

export function realNumber(isGood: (value: number) => boolean, wanted: string): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (text.trim() !== "" && isGood(value)) return value;
    throw new InvalidArgumentError(`It takes ${wanted}.`);
  };
}

export function size(text: string): Bytes {
  try {
    return parseBytes(text);
  } catch (error) {
    throw error instanceof HoldfastError ? new InvalidArgumentError(error.message) : error;
  }
}
