/**
 * The language of fault scripts: one sentence per fault.
 *
 * - the 3rd commit fails with out-of-memory
 * - the 2nd synchronize takes 40s
 * - every copy is late
 * - every 5th launch fails with driver-failed
 * - from the 4th reserve on stalls
 */

import { type ErrorCode, errorCodes, HoldfastError } from "../../errors/index.js";
import { parseDuration } from "../../units/index.js";
import { type DriverCall, driverCalls } from "../driver.js";

export type Effect =
  | { readonly type: "fails"; readonly code: ErrorCode }
  | { readonly type: "takes"; readonly elapsedMs: number }
  | { readonly type: "stalls" }
  | { readonly type: "late" };

export interface Fault {
  readonly sentence: string;
  readonly calls: readonly DriverCall[];
  /** True if the fault applies to the n-th such call, counted from 1. */
  strikes(n: number): boolean;
  readonly effect: Effect;
}

/** Words that name several calls. */
const groups: Readonly<Record<string, readonly DriverCall[]>> = {
  copy: ["copyToDevice", "copyToHost", "copyOnDevice"],
  work: ["copyToDevice", "copyToHost", "copyOnDevice", "fill", "launch", "launchGraph"],
  call: driverCalls,
};

const grammar = new RegExp(
  "^(?:the (?<only>\\d+)(?:st|nd|rd|th)|every(?: (?<each>\\d+)(?:st|nd|rd|th))?|from the (?<from>\\d+)(?:st|nd|rd|th)) " +
    "(?<call>[A-Za-z]+)(?: on)? " +
    "(?:fails with (?<code>[a-z-]+)|takes (?<time>\\S+)(?: of fake time)?|(?<stalls>stalls)|is (?<late>late))$",
);

/** Parses one sentence. */
export function parseFault(sentence: string): Fault {
  const match = grammar.exec(sentence.trim())?.groups;
  if (!match) throw unreadable(sentence, 'it must read like "the 3rd commit fails with out-of-memory"');
  const word = match["call"] ?? "";
  const calls = groups[word] ?? driverCalls.filter((call) => call === word);
  if (calls.length === 0) {
    throw unreadable(
      sentence,
      `"${word}" is not a driver call; the calls are ${driverCalls.join(", ")}, copy, work and call`,
    );
  }
  return { sentence, calls, strikes: counting(sentence, match), effect: parseEffect(sentence, match) };
}

function counting(sentence: string, groups: Record<string, string | undefined>): (n: number) => boolean {
  const number = (text: string): number => {
    if (Number(text) > 0) return Number(text);
    throw unreadable(sentence, "calls are counted from 1");
  };
  if (groups["only"]) {
    const only = number(groups["only"]);
    return (n) => n === only;
  }
  if (groups["from"]) {
    const from = number(groups["from"]);
    return (n) => n >= from;
  }
  const each = groups["each"] ? number(groups["each"]) : 1;
  return (n) => n % each === 0;
}

function parseEffect(sentence: string, groups: Record<string, string | undefined>): Effect {
  if (groups["late"]) return { type: "late" };
  if (groups["stalls"]) return { type: "stalls" };
  if (groups["time"]) return { type: "takes", elapsedMs: parseDuration(groups["time"]) };
  const code = (groups["code"] ?? "").toUpperCase().replaceAll("-", "_");
  if (!(code in errorCodes)) throw unreadable(sentence, `"${groups["code"]}" is not an error code`);
  return { type: "fails", code: code as ErrorCode };
}

function unreadable(sentence: string, why: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", `Cannot parse the fault "${sentence}": ${why}.`);
}
