/** Jinja with limits on steps and sizes. A template is a program of an untrusted file: it may loop, recurse, or double a string forever. */

import {
  jinjaPackage,
  type TemplateArguments,
  type TemplateEnvironment,
  type TemplateInterpreter,
  type TemplateNode,
  type TemplateValue,
} from "../packages.js";
import {
  type FilterCall,
  limitMethod,
  requireFilterable,
  requireItems,
  requireLength,
  requireSummable,
  requireWritable,
  TemplateLimit,
} from "./value-limits.js";

/** What a template may use. Templates of models need a few thousand steps for each message. */
const maxSteps = 2_000_000;
const maxRange = 10_000;
const maxDepth = 200;
/** Characters of all large values that a template makes. An item of a list counts as several. */
const maxProduced = 64 * 2 ** 20;
const charactersPerItem = 8;

/** An interpreter of one rendering. */
export function limitedInterpreter(environment: TemplateEnvironment): TemplateInterpreter {
  const { Interpreter } = jinjaPackage();
  const usage = new Usage();
  class LimitedInterpreter extends Interpreter {
    /** Statements, whose values become text. */
    readonly #statements = new WeakSet<TemplateNode>();
    /** Sums that are being evaluated, the innermost last. */
    readonly #sums: { readonly node: TemplateNode; left?: TemplateValue }[] = [];
    /** The filter whose arguments are evaluated next. */
    #filter: FilterCall | undefined;
    /** The member that is being looked up, and what it is a member of. */
    readonly #members: { readonly node: TemplateNode; object?: TemplateValue }[] = [];

    override evaluate(node: TemplateNode | undefined, scope: TemplateEnvironment): TemplateValue {
      usage.enter();
      let result: TemplateValue;
      try {
        result = super.evaluate(node, scope);
      } finally {
        usage.leave();
      }
      if (!node) return result;
      if (isNew(node)) usage.addValue(result);
      if (this.#statements.has(node)) requireWritable(result);
      const sum = this.#sums.at(-1);
      if (sum && node === sum.node.left) sum.left = result;
      else if (sum?.left && node === sum.node.right) requireSummable(sum.node, sum.left, result);
      const member = this.#members.at(-1);
      if (member && node === member.node.object) member.object = result;
      return result;
    }

    override evaluateBlock(statements: readonly TemplateNode[], scope: TemplateEnvironment): TemplateValue {
      for (const statement of statements) this.#statements.add(statement);
      return super.evaluateBlock(statements, scope);
    }

    override evaluateBinaryExpression(node: TemplateNode, scope: TemplateEnvironment): TemplateValue {
      this.#sums.push({ node });
      try {
        return super.evaluateBinaryExpression(node, scope);
      } finally {
        this.#sums.pop();
      }
    }

    override applyFilter(
      operand: TemplateValue,
      filter: TemplateNode,
      scope: TemplateEnvironment,
    ): TemplateValue {
      const isCall = filter.type === "CallExpression";
      const call = { name: String(isCall ? filter.callee?.value : filter.value), operand };
      if (isCall) this.#filter = call;
      else requireFilterable(call, [[], new Map()]);
      return super.applyFilter(operand, filter, scope);
    }

    override evaluateArguments(
      nodes: readonly TemplateNode[],
      scope: TemplateEnvironment,
    ): TemplateArguments {
      const filter = this.#filter;
      this.#filter = undefined;
      const found = super.evaluateArguments(nodes, scope);
      if (filter) requireFilterable(filter, found);
      return found;
    }

    /** Methods of strings check their results. */
    override evaluateMemberExpression(node: TemplateNode, scope: TemplateEnvironment): TemplateValue {
      const lookup: { readonly node: TemplateNode; object?: TemplateValue } = { node };
      this.#members.push(lookup);
      try {
        const found = super.evaluateMemberExpression(node, scope);
        const { object } = lookup;
        return object && typeof object.value === "string" && typeof found.value === "function"
          ? limitMethod(object, found)
          : found;
      } finally {
        this.#members.pop();
      }
    }
  }
  return new LimitedInterpreter(environment);
}

/** True if a node may make a new value: literals, variables and members are there already. */
function isNew({ type, property }: TemplateNode): boolean {
  if (type === "MemberExpression") return property?.type === "SliceExpression";
  return type !== "Identifier" && type !== "StringLiteral";
}

class Usage {
  #steps = 0;
  #depth = 0;
  #produced = 0;

  enter(): void {
    this.#steps += 1;
    if (this.#steps > maxSteps) throw new TemplateLimit(`it took more than ${maxSteps} steps`);
    this.#depth += 1;
    if (this.#depth > maxDepth) throw new TemplateLimit(`it is nested more than ${maxDepth} levels deep`);
  }

  leave(): void {
    this.#depth -= 1;
  }

  addValue({ value }: TemplateValue): void {
    if (typeof value === "string") {
      requireLength(value.length);
      this.#addProduced(value.length);
    } else if (Array.isArray(value) || value instanceof Map) {
      const count = Array.isArray(value) ? value.length : value.size;
      requireItems(count);
      this.#addProduced(count * charactersPerItem);
    }
  }

  #addProduced(size: number): void {
    if (size <= 4096) return;
    this.#produced += size;
    if (this.#produced > maxProduced) throw new TemplateLimit("it made too many large values");
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
