/** Limits of the values of a template, checked before they are made: a filter can make gigabytes of a short list in one step. */

import type { TemplateArguments, TemplateFunction, TemplateNode, TemplateValue } from "../packages.js";
import { occurrences, wordCount, writtenSize } from "./written-size.js";

const maxLength = 4 * 2 ** 20;
const maxItems = 100_000;

/** Stops a template that uses too much. The message says what. */
export class TemplateLimit extends Error {}

/** A filter, and what it is applied to. */
export interface FilterCall {
  readonly name: string;
  readonly operand: TemplateValue;
}

export function requireLength(length: number): void {
  if (length > maxLength)
    throw new TemplateLimit(`it made a text of ${length} characters or more; the maximum is ${maxLength}`);
}

export function requireItems(count: number): void {
  if (count > maxItems)
    throw new TemplateLimit(`it made a list of ${count} items; the maximum is ${maxItems}`);
}

/** A list or a map that is to be written as text. */
export function requireWritable(value: TemplateValue): void {
  if (typeof value.value !== "object" || value.value === null) return;
  const { length, values } = writtenSize(value, maxLength);
  requireLength(length + values);
}

/** `~` writes both sides, and `+` does so if one of them is a text. */
export function requireSummable({ operator }: TemplateNode, left: TemplateValue, right: TemplateValue): void {
  const isText = [left, right].some(({ value }) => typeof value === "string");
  if (operator?.value !== "~" && !(operator?.value === "+" && isText)) return;
  requireWritable(left);
  requireWritable(right);
}

/** The most text that a filter could make, for filters that make much more than they get. */
const filterLengths: Readonly<Record<string, (operand: TemplateValue, args: TemplateArguments) => number>> = {
  string: (operand) => plainSize(operand),
  tojson: (operand, [, named]) => {
    const indent = Math.max(0, numberOf(named.get("indent")) ?? 0);
    const separators = named.get("separators");
    const between = separators ? plainSize(separators) : 4;
    const { length, values, depth } = writtenSize(operand, maxLength);
    return length + values * (between + indent * depth);
  },
  join: (operand, [[separator], named]) => {
    const { length, values } = writtenSize(operand, maxLength);
    const pieces = typeof operand.value === "string" ? operand.value.length : values;
    return length + pieces * textOf(separator ?? named.get("separator")).length;
  },
  indent: (operand, [[width], named]) => {
    const text = textOf(operand);
    return text.length + (occurrences(text, "\n") + 1) * (numberOf(width ?? named.get("width")) ?? 4);
  },
  replace: (operand, [[from, to]]) => replacedLength(textOf(operand), from, to),
};

export function requireFilterable({ name, operand }: FilterCall, args: TemplateArguments): void {
  const lengthOf = Object.hasOwn(filterLengths, name) ? filterLengths[name] : undefined;
  if (lengthOf) requireLength(lengthOf(operand, args));
}

function plainSize(value: TemplateValue): number {
  const { length, values } = writtenSize(value, maxLength);
  return length + values;
}

const textOf = (value: TemplateValue | undefined): string =>
  typeof value?.value === "string" ? value.value : "";

const numberOf = (value: TemplateValue | undefined): number | undefined =>
  typeof value?.value === "number" ? value.value : undefined;

function replacedLength(
  text: string,
  from: TemplateValue | undefined,
  to: TemplateValue | undefined,
): number {
  const growth = textOf(to).length - textOf(from).length;
  return growth > 0 ? text.length + occurrences(text, textOf(from)) * growth : text.length;
}

/** The method of a string, with a check of what it will make. */
export function limitMethod(object: TemplateValue, method: TemplateValue): TemplateValue {
  const text = String(object.value);
  const name = methodName(object, method);
  if (name !== "replace" && name !== "split") return method;
  const run = method.value as TemplateFunction;
  const limited: TemplateFunction = (values, scope) => {
    if (name === "replace") requireLength(replacedLength(text, values[0], values[1]));
    else {
      const separator = values[0]?.value;
      requireItems(typeof separator === "string" ? occurrences(text, separator) : wordCount(text));
    }
    return run(values, scope);
  };
  return new (method.constructor as new (value: TemplateFunction) => TemplateValue)(limited);
}

/** Also of a computed name, such as text["split"]. */
function methodName({ builtins }: TemplateValue, method: TemplateValue): string | undefined {
  for (const [name, known] of builtins) if (known === method) return name;
  return undefined;
}
