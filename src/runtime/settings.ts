/**
 * The settings: one table, from which options and environment variables are read, validated and documented. An option
 * in code wins over the environment, which wins over the default. An unknown or malformed setting is an error at the
 * start.
 */

import { tmpdir } from "node:os";
import { defaultCacheFolder } from "../driver/index.js";
import { HoldfastError } from "../errors/index.js";
import { type Bytes, formatDuration, parseBytes, parseDuration } from "../units/index.js";

/** A row of the table: how a value is written, parsed and explained. */
export interface Setting<T> {
  readonly variable: `HOLDFAST_${string}`;
  readonly kind: string;
  readonly meaning: string;
  readonly defaultText: string;
  readonly example: string;
  readonly fallback: () => T;
  /** The unit of a number passed in code, so that it can be parsed like a text. */
  readonly unit?: "B" | "ms";
  /** Parses a text; throws a HoldfastError that says what is valid. */
  readonly parse: (text: string) => T;
}

function choice<const T extends string>(...choices: readonly T[]): Pick<Setting<T>, "kind" | "parse"> {
  return {
    kind: choices.join(" | "),
    parse(text) {
      const match = choices.find((choice) => choice === text);
      if (match !== undefined) return match;
      throw new HoldfastError("BAD_SETTING", `"${text}" is not one of ${choices.join(", ")}.`);
    },
  };
}

const onOff: Pick<Setting<boolean>, "kind" | "parse"> = {
  kind: "on | off",
  parse: (text) => choice("on", "off").parse(text) === "on",
};

const size: Pick<Setting<Bytes | "auto">, "kind" | "parse" | "unit"> = {
  kind: "size | auto",
  unit: "B",
  parse: (text) => (text === "auto" ? "auto" : parseBytes(text)),
};

/** All settings with their variable, default and meaning. */
export const settingsTable = {
  memory: {
    variable: "HOLDFAST_MEMORY",
    ...size,
    meaning:
      "The budget: the maximum bytes that Holdfast may use on the device. auto takes the free memory minus a margin. The margin is " +
      "max(512 MiB, 2 %) on a discrete card, max(8 GiB, 10 %) on a unified-memory machine, and max(512 MiB, 10 %) on a CPU. In a " +
      "container it is max(512 MiB, 10 %) of the container's limit. The 512 MiB count as at most a quarter of the memory. A size " +
      "that you set has no margin, but that much memory must be free. On a unified-memory machine without a container limit, the " +
      "margin must be free too. On a CPU auto takes at most 4 GiB. A larger size, up to 16 GiB, needs 64-bit WebAssembly memory: Node.js 24 or later. " +
      "Kernels then check addresses and are slower, matrix products by a third; a BLAS library (HOLDFAST_BLAS) is as fast as before.",
    defaultText: "auto",
    example: "64GiB",
    fallback: () => "auto",
  },
  arena: {
    variable: "HOLDFAST_ARENA",
    ...size,
    meaning:
      "The capacity of the step arena, which holds the memory of steps. The capacity is an address range; memory is committed to it " +
      "only as it is used. auto takes the whole budget, or half of it if addresses are scarce (the CPU driver has 4 GiB) or if a GPU " +
      "cannot commit memory in chunks.",
    defaultText: "auto",
    example: "1.5GiB",
    fallback: () => "auto",
  },
  staging: {
    variable: "HOLDFAST_STAGING",
    kind: "size",
    unit: "B",
    parse: parseBytes,
    meaning: "The staging ring: page-locked host memory for all uploads and read-backs.",
    defaultText: "32MiB",
    example: "128MiB",
    fallback: () => parseBytes("32MiB"),
  },
  poison: {
    variable: "HOLDFAST_POISON",
    ...onOff,
    meaning:
      "Fill step memory with NaN when it is committed and when it is freed, so that a stale read gives NaN.",
    defaultText: "off",
    example: "on",
    fallback: () => false,
  },
  capture: {
    variable: "HOLDFAST_CAPTURE",
    ...choice("auto", "on", "off"),
    meaning:
      "How a compiled step runs. auto: as a captured graph, or directly if the capture is rejected (with one warning) or if the graph " +
      "is slower. on: as a graph; a rejected capture is an error. off: always directly.",
    defaultText: "auto",
    example: "off",
    fallback: () => "auto" as const,
  },
  onRejectedPlan: {
    variable: "HOLDFAST_ON_REJECTED_PLAN",
    ...choice("fallback", "error"),
    meaning:
      "What to do if the verifier rejects a compiled step's plan, which is a bug in Holdfast. fallback: skip passes until " +
      "it accepts the plan, print a warning and write a report. error: throw PLAN_REJECTED.",
    defaultText: "fallback",
    example: "error",
    fallback: () => "fallback" as const,
  },
  verifyUploads: {
    variable: "HOLDFAST_VERIFY_UPLOADS",
    ...onOff,
    meaning: "Read every upload back and compare checksums.",
    defaultText: "off",
    example: "on",
    fallback: () => false,
  },
  stallAfter: {
    variable: "HOLDFAST_STALL_AFTER",
    kind: "duration | off",
    unit: "ms",
    parse: (text: string) => (text === "off" ? ("off" as const) : parseDuration(text)),
    meaning:
      "How long a phase, a driver call or a file access may show no progress before the watchdog reports a stall. Holdfast's own long " +
      "work (tracing, planning, compiling, CPU kernels) shows progress as it goes. These times do not count: at a debugger's " +
      "breakpoint, stopped by a signal, while the machine sleeps, and waiting for a busy processor. Your own code is reported if it " +
      "blocks the event loop for that long.",
    defaultText: formatDuration(30_000),
    example: "2m",
    fallback: (): number | "off" => 30_000,
  },
  onStall: {
    variable: "HOLDFAST_ON_STALL",
    ...choice("end", "report"),
    meaning:
      "report: write the stall report to stderr and to a file, and let the run continue. end: write it and end the process with " +
      "exit code 86. A stall in your own code between two steps is reported, but never ends the process. The holdfast " +
      "commands default to end; holdfast doctor always ends.",
    defaultText: "report",
    example: "end",
    fallback: () => "report" as const,
  },
  reports: {
    variable: "HOLDFAST_REPORTS",
    kind: "folder",
    parse: nonEmpty,
    meaning: "The folder for reports of stalls and of plans that the verifier rejected.",
    defaultText: "the system's folder for temporary files",
    example: "runs/reports",
    fallback: tmpdir,
  },
  log: {
    variable: "HOLDFAST_LOG",
    ...choice("quiet", "phases"),
    meaning:
      "quiet: print only warnings and, on a terminal, the progress of long compilations. phases: also print the state of memory at " +
      "the start, a line at the start and end of each phase, and the progress of long compilations every two seconds. Output goes " +
      "to stderr.",
    defaultText: "quiet",
    example: "phases",
    fallback: () => "quiet" as const,
  },
  precision: {
    variable: "HOLDFAST_PRECISION",
    ...choice("f32", "tf32", "bf16"),
    meaning:
      "The precision to which a GPU may round the operands of f32 matrix products: f32 (IEEE, no rounding), TF32 or bf16. With bf16, a " +
      "compiled step also rounds results of matrix products that only pass from one kernel to the next. Weights, their gradients, " +
      "accumulators, statistics and everything else stay f32. With TF32 and bf16, exp, tanh, sigmoid and activations that use them are " +
      "approximate: their relative errors are below 2^-14. The CPU always computes in f32.",
    defaultText: "f32",
    example: "tf32",
    fallback: () => "f32" as const,
  },
  cache: {
    variable: "HOLDFAST_CACHE",
    kind: "folder | off",
    parse: nonEmpty,
    meaning:
      "The folder for kernels compiled for a GPU, and for the results of autotuning. Holdfast loads only files that this user owns " +
      "and that no other user can write. off compiles and measures in every process.",
    defaultText: "holdfast in the user's cache folder",
    example: "/var/tmp/kernels",
    fallback: () => defaultCacheFolder(process.env),
  },
  cudaPath: {
    variable: "HOLDFAST_CUDA_PATH",
    kind: "folder | auto",
    parse: nonEmpty,
    meaning:
      "The folder to search first for CUDA's libraries. auto searches the folders of the system, of toolkits and of pip packages.",
    defaultText: "auto",
    example: "/opt/cuda",
    fallback: () => "auto",
  },
  threads: {
    variable: "HOLDFAST_THREADS",
    kind: "count | auto",
    parse: threadCount,
    meaning:
      "Threads of the CPU driver; with a GPU, threads that compile kernels, at most 9. auto uses all threads of the machine, but at most " +
      "the whole CPUs of a container's quota.",
    defaultText: "auto",
    example: "2",
    fallback: () => "auto" as const,
  },
  blas: {
    variable: "HOLDFAST_BLAS",
    kind: "library | auto | off",
    parse: nonEmpty,
    meaning:
      "The BLAS library that the CPU driver uses for large matrix products instead of its WebAssembly kernels, with the same number of " +
      "threads: a path or a soname. auto takes the first installed one of OpenBLAS, NVPL, MKL, BLIS and Accelerate that multiplies " +
      "small matrices correctly; without one, it is off. With off, the same seed gives the same bits on every machine with the same " +
      "Node. With a library, the bits depend on its version, the processor and the number of threads.",
    defaultText: "off; auto in the holdfast command",
    example: "libopenblas.so.0",
    fallback: () => "off",
  },
} as const satisfies Record<string, Setting<unknown>>;

export type SettingName = keyof typeof settingsTable;

/** Every setting with its value. */
export type Settings = { readonly [Name in SettingName]: ReturnType<(typeof settingsTable)[Name]["parse"]> };

/** Settings as a caller passes them: parsed values, or the texts of the environment. */
export type SettingOptions = { readonly [Name in SettingName]?: Settings[Name] | string };

const names = Object.keys(settingsTable) as SettingName[];

/**
 * Reads the settings: options first, then the environment, then the defaults.
 *
 * @example
 * ```ts
 * import { readSettings } from "holdfast";
 * const settings = readSettings({ memory: "1.5GiB" }, { HOLDFAST_POISON: "on" });
 * console.log(settings.memory, settings.poison, settings.capture); // → 1610612736 true auto
 * ```
 */
export function readSettings(
  options: SettingOptions = {},
  environment: Readonly<Record<string, string | undefined>> = process.env,
): Settings {
  rejectUnknown(Object.keys(options), names, "option");
  const variables = names.map((name) => settingsTable[name].variable);
  rejectUnknown(
    Object.keys(environment).filter((key) => key.startsWith("HOLDFAST_")),
    variables,
    "variable",
  );
  return Object.fromEntries(
    names.map((name) => [name, readSetting(name, options[name], environment)]),
  ) as Settings;
}

function readSetting(
  name: SettingName,
  option: unknown,
  environment: Readonly<Record<string, string | undefined>>,
): unknown {
  const row: Setting<unknown> = settingsTable[name];
  const text = environment[row.variable];
  // Parsed even if an option wins: a malformed variable is an error at once.
  const fromEnvironment = text === undefined ? row.fallback() : readText(row, text, row.variable);
  if (option === undefined) return fromEnvironment;
  return typeof option === "string"
    ? readText(row, option, `Option ${name}`)
    : requireParsed(name, row, option);
}

function readText(row: Setting<unknown>, text: string, where: string): unknown {
  try {
    return row.parse(text);
  } catch (cause) {
    const message = `${where}: ${(cause as Error).message} Example: ${row.example}.`;
    throw new HoldfastError("BAD_SETTING", message, { cause });
  }
}

/** A value passed in code must have the type and range of the text form. */
function requireParsed(name: SettingName, row: Setting<unknown>, value: unknown): unknown {
  const hasType = typeof value === typeof row.parse(row.example);
  if (hasType && (typeof value !== "number" || isReadable(row, value))) return value;
  throw new HoldfastError(
    "BAD_SETTING",
    `Option ${name} is ${String(value)}; it takes ${row.kind}, for example ${row.example}.`,
  );
}

function isReadable({ parse, unit }: Setting<unknown>, value: number): boolean {
  try {
    parse(`${value}${unit ?? ""}`);
    return true;
  } catch {
    return false;
  }
}

function rejectUnknown(names: readonly string[], validNames: readonly string[], what: string): void {
  for (const name of names) {
    if (validNames.includes(name)) continue;
    throw new HoldfastError(
      "BAD_SETTING",
      `There is no ${what} ${name}. Did you mean ${nearest(name, validNames)}? The ${what}s are ${validNames.join(", ")}.`,
    );
  }
}

/** The valid name that shares the most leading and trailing letters with the name. */
function nearest(name: string, validNames: readonly string[]): string {
  const countShared = (other: string): number => {
    let head = 0;
    while (head < name.length && name[head] === other[head]) head++;
    let tail = 0;
    while (tail < name.length - head && name.at(-1 - tail) === other.at(-1 - tail)) tail++;
    return head + tail - Math.abs(name.length - other.length);
  };
  return validNames.reduce((best, candidate) =>
    countShared(candidate) > countShared(best) ? candidate : best,
  );
}

function nonEmpty(text: string): string {
  if (text !== "") return text;
  throw new HoldfastError("BAD_SETTING", "The value is empty.");
}

function threadCount(text: string): number | "auto" {
  if (text === "auto") return text;
  const count = Number(text);
  if (/^\d+$/.test(text) && count >= 1 && count <= 256) return count;
  throw new HoldfastError("BAD_SETTING", `"${text}" is not a number of threads from 1 to 256.`);
}
