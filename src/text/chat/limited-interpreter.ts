/** Jinja with limits on steps and sizes. A template is a program of an untrusted file: it may loop, recurse, or double a string forever. */

import {
  jinjaPackage,
  type TemplateEnvironment,
  type TemplateInterpreter,
  type TemplateNode,
  type TemplateValue,
} from "../packages.js";

/** What a template may use. Templates of models need a few thousand steps for each message. */
const maxSteps = 2_000_000;
const maxLength = 4 * 2 ** 20;
const maxItems = 100_000;
const maxRange = 10_000;
const maxDepth = 200;

/** Stops a template that uses too much. The message says what. */
export class TemplateLimit extends Error {}

/** An interpreter of one rendering. */
export function limitedInterpreter(environment: TemplateEnvironment): TemplateInterpreter {
  const { Interpreter } = jinjaPackage();
  const usage = new Usage();
  class LimitedInterpreter extends Interpreter {
    override evaluate(node: TemplateNode | undefined, scope: TemplateEnvironment): TemplateValue {
      usage.enter();
      const result = super.evaluate(node, scope);
      usage.leave(result);
      return result;
    }
  }
  return new LimitedInterpreter(environment);
}

class Usage {
  #steps = 0;
  #depth = 0;
  /** Characters and items of all large values so far. */
  #produced = 0;

  enter(): void {
    this.#steps += 1;
    if (this.#steps > maxSteps) throw new TemplateLimit(`it took more than ${maxSteps} steps`);
    this.#depth += 1;
    if (this.#depth > maxDepth) throw new TemplateLimit(`it is nested more than ${maxDepth} levels deep`);
  }

  leave({ value }: TemplateValue): void {
    this.#depth -= 1;
    if (typeof value === "string") this.#count(value.length, maxLength, "characters");
    else if (Array.isArray(value)) this.#count(value.length, maxItems, "items");
    else if (value instanceof Map) this.#count(value.size, maxItems, "items");
  }

  #count(size: number, max: number, unit: string): void {
    if (size > max) throw new TemplateLimit(`it made a value of ${size} ${unit}; the maximum is ${max}`);
    if (size > 4096) this.#produced += size;
    if (this.#produced > maxLength * 64) throw new TemplateLimit("it made too many large values");
  }
}

/** The names that every template has. */
export function templateGlobals(): TemplateEnvironment {
  const { Environment } = jinjaPackage();
  const environment = new Environment();
  for (const [name, value] of [
    ["true", true],
    ["false", false],
    ["none", null],
    ["True", true],
    ["False", false],
    ["None", null],
    ["range", limitedRange],
    ["strftime_now", formatNow],
    ["raise_exception", raise],
  ] as const)
    environment.set(name, value);
  return environment;
}

/** An error that the template itself raises, for example about the order of roles. */
export class TemplateRaised extends Error {}

function raise(message: unknown): never {
  throw new TemplateRaised(String(message).slice(0, 500));
}

function limitedRange(start: number, stop?: number, step = 1): number[] {
  const [from, to] = stop === undefined ? [0, start] : [start, stop];
  const count = Math.max(0, Math.ceil((to - from) / step));
  if (!(count <= maxRange))
    throw new TemplateLimit(`it asks for a range of ${count} numbers; the maximum is ${maxRange}`);
  return Array.from({ length: count }, (_, index) => from + index * step);
}

/** Python's strftime, in English and local time, for the parts that templates use. */
function formatNow(format: string): string {
  const now = new Date();
  const two = (value: number): string => String(value).padStart(2, "0");
  const name = (options: Intl.DateTimeFormatOptions): string =>
    new Intl.DateTimeFormat("en-US", options).format(now);
  const parts: Readonly<Record<string, () => string>> = {
    Y: () => String(now.getFullYear()),
    m: () => two(now.getMonth() + 1),
    d: () => two(now.getDate()),
    b: () => name({ month: "short" }),
    B: () => name({ month: "long" }),
    a: () => name({ weekday: "short" }),
    A: () => name({ weekday: "long" }),
    H: () => two(now.getHours()),
    M: () => two(now.getMinutes()),
    S: () => two(now.getSeconds()),
    "%": () => "%",
  };
  return String(format)
    .slice(0, 200)
    .replace(/%([a-zA-Z%])/g, (all, part: string) => parts[part]?.() ?? all);
}
