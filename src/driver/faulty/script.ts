/**
 * The language of fault scripts: one sentence a fault.
 *
 *   the 3rd commit fails with out-of-memory
 *   the 2nd synchronize takes 40s
 *   every copy is late
 *   every 5th launch fails with driver-failed
 *   from the 4th reserve on stalls
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
  /** Does the fault strike the n-th such call, counted from 1? */
  strikes(n: number): boolean;
  readonly effect: Effect;
}

/** Words for several calls at once. */
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

/** Reads one sentence. */
export function parseFault(sentence: string): Fault {
  const parts = grammar.exec(sentence.trim())?.groups;
  if (!parts) throw unreadable(sentence, 'it must read like "the 3rd commit fails with out-of-memory"');
  const word = parts["call"] ?? "";
  const calls = groups[word] ?? driverCalls.filter((call) => call === word);
  if (calls.length === 0) {
    throw unreadable(
      sentence,
      `"${word}" is no driver call; there are ${driverCalls.join(", ")}, copy, work and call`,
    );
  }
  return { sentence, calls, strikes: counting(sentence, parts), effect: parseEffect(sentence, parts) };
}

function counting(sentence: string, parts: Record<string, string | undefined>): (n: number) => boolean {
  const number = (text: string): number => {
    if (Number(text) > 0) return Number(text);
    throw unreadable(sentence, "calls are counted from 1");
  };
  if (parts["only"]) {
    const only = number(parts["only"]);
    return (n) => n === only;
  }
  if (parts["from"]) {
    const from = number(parts["from"]);
    return (n) => n >= from;
  }
  const each = parts["each"] ? number(parts["each"]) : 1;
  return (n) => n % each === 0;
}

function parseEffect(sentence: string, parts: Record<string, string | undefined>): Effect {
  if (parts["late"]) return { type: "late" };
  if (parts["stalls"]) return { type: "stalls" };
  if (parts["time"]) return { type: "takes", elapsedMs: parseDuration(parts["time"]) };
  const code = (parts["code"] ?? "").toUpperCase().replaceAll("-", "_");
  if (!(code in errorCodes)) throw unreadable(sentence, `"${parts["code"]}" is no error code`);
  return { type: "fails", code: code as ErrorCode };
}

function unreadable(sentence: string, why: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", `The fault "${sentence}" can't be read: ${why}.`);
}
