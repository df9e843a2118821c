/** JSON of untrusted files: a bounded parser, and checked access to values by their path. */

import { HoldfastError } from "../errors/index.js";

/** Limits of a JSON text, checked before anything is built of it. */
export interface JsonLimits {
  /** Arrays and objects, nested or not. */
  readonly maxContainers: number;
  /** Values of all arrays and objects. */
  readonly maxValues: number;
  /** Names of all objects, which take more memory than values. Default: as many as values. */
  readonly maxNames?: number;
  readonly maxDepth: number;
}

/** Parses JSON after counting its arrays, objects and values. `JSON.parse` alone would build whatever a hostile file describes. */
export function parseJson(
  bytes: Uint8Array,
  file: string,
  limits: JsonLimits,
  advice = "Download or create the file again.",
): JsonField {
  requireWithin(bytes, file, limits);
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new HoldfastError("BAD_FILE", `${file} is not UTF-8 text. ${advice}`, { cause });
  }
  try {
    return new JsonField(JSON.parse(text), file, "", advice);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message.slice(0, 120) : String(cause);
    throw new HoldfastError("BAD_FILE", `${file} is not JSON: ${why}. ${advice}`, {
      cause,
    });
  }
}

function requireWithin(bytes: Uint8Array, file: string, limits: JsonLimits): void {
  const exceeded = exceededLimit(bytes, limits);
  if (!exceeded) return;
  const { found, limit, unit } = exceeded;
  throw new HoldfastError(
    "BAD_FILE",
    `${file} has ${found} ${unit}; the maximum is ${limit}. It is damaged, or not the file it claims to be.`,
    { numbers: { file, found, limit } },
  );
}

/** A limit that a JSON text is above. */
export interface ExceededLimit {
  readonly found: number;
  readonly limit: number;
  readonly unit: string;
}

/** The first limit that a JSON text is above. Counts, and builds nothing. */
export function exceededLimit(bytes: Uint8Array, limits: JsonLimits): ExceededLimit | undefined {
  let [containers, values, names, depth, maxDepth] = [0, 0, 0, 0, 0];
  let isInString = false;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at];
    if (isInString) {
      if (byte === 0x5c) at += 1;
      else if (byte === 0x22) isInString = false;
    } else if (byte === 0x22) isInString = true;
    else if (byte === 0x2c) values += 1;
    else if (byte === 0x3a) names += 1;
    else if (byte === 0x7b || byte === 0x5b) {
      containers += 1;
      depth += 1;
      if (depth > maxDepth) maxDepth = depth;
    } else if (byte === 0x7d || byte === 0x5d) depth -= 1;
  }
  const { maxNames = limits.maxValues } = limits;
  for (const [found, limit, unit] of [
    [containers, limits.maxContainers, "arrays and objects"],
    [values + containers, limits.maxValues, "values"],
    [names, maxNames, "names"],
    [maxDepth, limits.maxDepth, "levels"],
  ] as const)
    if (found > limit) return { found, limit, unit };
  return undefined;
}

/** A value in a JSON file, with its path for error messages. */
export class JsonField {
  readonly value: unknown;
  readonly file: string;
  readonly path: string;
  readonly #advice: string;

  constructor(value: unknown, file: string, path: string, advice = "Download or create the file again.") {
    this.value = value;
    this.file = file;
    this.path = path;
    this.#advice = advice;
  }

  /** A value inside this one. */
  protected at(value: unknown, path: string): JsonField {
    return new JsonField(value, this.file, path, this.#advice);
  }

  get isAbsent(): boolean {
    return this.value === undefined || this.value === null;
  }

  get isString(): boolean {
    return typeof this.value === "string";
  }

  get isList(): boolean {
    return Array.isArray(this.value);
  }

  /** An own field; absent if there is none. */
  get(key: string): JsonField {
    const record = this.record();
    return this.at(Object.hasOwn(record, key) ? record[key] : undefined, this.#below(key));
  }

  record(): Readonly<Record<string, unknown>> {
    const { value } = this;
    if (typeof value === "object" && value !== null && !Array.isArray(value))
      return value as Readonly<Record<string, unknown>>;
    throw this.wrong("an object");
  }

  /** The entries of an object, in the order of the file. */
  *entries(): IterableIterator<readonly [string, JsonField]> {
    const record = this.record();
    for (const key of Object.keys(record)) yield [key, this.at(record[key], this.#below(key))];
  }

  list(maxLength = Number.POSITIVE_INFINITY): readonly unknown[] {
    if (!Array.isArray(this.value)) throw this.wrong("a list");
    if (this.value.length > maxLength) throw this.wrong(`a list of at most ${maxLength} values`);
    return this.value;
  }

  items(maxLength?: number): readonly JsonField[] {
    return this.list(maxLength).map((item, index) => this.item(item, index));
  }

  item(value: unknown, index: number): JsonField {
    return this.at(value, `${this.path}[${index}]`);
  }

  string(maxLength = 1 << 20): string {
    if (typeof this.value !== "string") throw this.wrong("a string");
    if (this.value.length > maxLength) throw this.wrong(`a string of at most ${maxLength} characters`);
    return this.value;
  }

  /** The string, or undefined if it is absent. */
  optionalString(maxLength?: number): string | undefined {
    return this.isAbsent ? undefined : this.string(maxLength);
  }

  boolean(absent: boolean): boolean {
    if (this.isAbsent) return absent;
    if (typeof this.value !== "boolean") throw this.wrong("true or false");
    return this.value;
  }

  whole(min: number, max: number): number {
    const { value } = this;
    if (typeof value === "number" && Number.isSafeInteger(value) && value >= min && value <= max)
      return value;
    throw this.wrong(`a whole number from ${min} to ${max}`);
  }

  number(): number {
    if (typeof this.value !== "number" || !Number.isFinite(this.value)) throw this.wrong("a number");
    return this.value;
  }

  /** The value, shortened for messages. */
  get shown(): string {
    return this.value === undefined ? "absent" : shorten(this.value);
  }

  /** An error: what the field must be, and what it is. */
  wrong(expected: string): Error {
    return new HoldfastError(
      "BAD_FILE",
      `${this.file}: ${this.path || "the file"} must be ${expected}, but is ${this.shown}. ${this.#advice}`,
      { numbers: { file: this.file, field: this.path } },
    );
  }

  /** An error: a feature that would change the result, and that is not supported. */
  unsupported(feature: string, advice: string): HoldfastError {
    return new HoldfastError(
      "UNSUPPORTED",
      `${this.file}: ${this.path || "the file"} has ${feature}, which Holdfast does not support. ${advice}`,
      { numbers: { file: this.file, field: this.path } },
    );
  }

  #below(key: string): string {
    const name = key.length <= 40 ? key : `${key.slice(0, 40)}…`;
    return this.path === "" ? name : `${this.path}.${name}`;
  }
}

function shorten(value: unknown): string {
  if (Array.isArray(value)) return `a list of ${value.length} values`;
  if (typeof value === "object" && value !== null) return "an object";
  return typeof value === "string" ? JSON.stringify(value.slice(0, 60)) : String(value);
}
